package main

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(body)
}

// Metrics are on the API's port, at a separate address, or off.
func TestMetricsOfANode(t *testing.T) {
	t.Parallel()
	url := database(t)
	api := startNode(t, url, "--roles=api", "--metrics=off")
	all := startNode(t, url, "--metrics=open")
	closed := startNode(t, url, "--roles=api")
	worker := start(t, append(nodeEnv(url), "ASYNCFLOW_PUBLIC_URL="+api.url), "serve",
		"--roles=dispatcher,governance", "--metrics=127.0.0.1:0")
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, all.client(), oneStage())
	awaitAll(t, all.client(), submitMany(t, all.client(), 10))

	status, _ := get(t, api.url+"/metrics")
	assert.Equal(t, 404, status)
	status, _ = get(t, closed.url+"/metrics")
	assert.Equal(t, 401, status, "by default it needs an admin token")
	operator, err := testIssuer(t).IssueAdmin("test", time.Hour, time.Now())
	require.NoError(t, err)
	assert.Equal(t, 200, closed.status(operator, "/metrics"))
	status, text := get(t, all.url+"/metrics")
	require.Equal(t, 200, status)
	assert.Contains(t, text, `asyncflow_submitted_tasks_total{tenant="acme",type="pipe"} 10`)
	m := regexp.MustCompile(`metrics are served" listen=(\S+)`).FindStringSubmatch(worker.said())
	require.NotNil(t, m, worker.said())
	status, _ = get(t, "http://"+m[1]+"/v1/tasks")
	assert.Equal(t, 404, status)
	// a task is done before its attempt is counted
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, text = get(t, all.url+"/metrics")
		assert.Contains(c, text, "asyncflow_in_flight_tasks 0\n")
		_, own := get(t, "http://"+m[1]+"/metrics")
		assert.Contains(c, own, "asyncflow_in_flight_tasks 0\n")
		done := 0
		for _, m := range regexp.MustCompile(
			`asyncflow_attempts_total\{outcome="done",tenant="acme",type="pipe"\} `+
				`(\d+)`).FindAllStringSubmatch(text+own, -1) {
			n, _ := strconv.Atoi(m[1])
			done += n
		}
		assert.Equal(c, 10, done)
	}, patience, 20*time.Millisecond)
	r := runCLI(t, map[string]string{"DATABASE_URL": url, "ASYNCFLOW_SECRET": testSecret,
		"ASYNCFLOW_JWT_SECRET": testJWTSecret}, "serve", "--metrics=nowhere")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, `"nowhere"`)
}
