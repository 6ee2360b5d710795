package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/openapi"
)

// runHere runs a command as the program would, with an environment of its own.
func runHere(t *testing.T, env map[string]string, args ...string) (code int, out, errs string) {
	t.Helper()
	var stdout, stderr strings.Builder
	code = realMain(t.Context(), args, &stdout, &stderr,
		func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	return code, stdout.String(), stderr.String()
}

// testedBy sends an endpoint a test delivery, as soon as the rate of its tenant allows it.
func testedBy(t *testing.T, c *client.Client, id string) (result client.EndpointTestResult) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		result, err = c.TestEndpoint(t.Context(), id, client.EndpointTest{})
		var busy *client.Error
		if errors.As(err, &busy) && busy.Status == http.StatusTooManyRequests {
			return false
		}
		require.NoError(t, err)
		return true
	}, patience, 100*time.Millisecond)
	return result
}

// The secrets of an endpoint are shown once at most: they are in no answer, log line or error, even
// if the worker echoes everything that it gets.
func TestSecretsOfEndpointsAreNotShown(t *testing.T) {
	t.Parallel()
	url := database(t)
	repeat := httptest.NewUnstartedServer(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.URL.Path == "/token" {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"access_token":"swordfish-issued","token_type":"bearer"}`)
				return
			}
			var c struct{ Type, Challenge string }
			if json.Unmarshal(body, &c) == nil && c.Type == "asyncflow.challenge" &&
				r.URL.Path == "/echo" {
				assert.NoError(t, openapi.CheckJSON("Challenge", body))
				json.NewEncoder(w).Encode(map[string]string{"challenge": c.Challenge})
				return
			}
			w.WriteHeader(500)
			r.Header.Del("Webhook-Signature")
			r.Header.Write(w)
		}))
	repeat.Config.ErrorLog = log.New(io.Discard, "", 0)
	repeat.StartTLS()
	t.Cleanup(repeat.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: repeat.Certificate().Raw}))
	certificate, key := testPair(t, repeat.TLS)

	p := start(t, append(nodeEnv(url), "ASYNCFLOW_VERIFY_ENDPOINTS=true"), "serve",
		"--log-level=debug", "--metrics=open")
	require.NotEmpty(t, p.url, p.said())
	c := p.client()
	_, err := c.PutTaskType(t.Context(), "pipe", client.TaskTypeSpec{Stages: []asyncflow.Stage{
		{Name: "only", Retry: asyncflow.RetryPolicy{MaxAttempts: 2,
			Interval: asyncflow.Seconds(-0.01)}}}})
	require.NoError(t, err)
	auths := []client.EndpointAuth{
		{Kind: "bearer", Token: "swordfish-bearer"},
		{Kind: "basic", Username: "me", Password: "swordfish-basic"},
		{Kind: "oauth2", TokenURL: repeat.URL + "/token", ClientID: "me",
			ClientSecret: "swordfish-oauth2"},
	}
	secrets := []string{"swordfish", "bWU6c3dvcmRmaXNo", strings.TrimSpace(key)[40:100]}
	var endpoints []client.Endpoint
	var said strings.Builder
	for _, auth := range auths {
		e, err := c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "pipe", Stage: "only",
			URL:            repeat.URL + "/echo",
			AllowDuplicate: true, Headers: map[string]string{"X-Key": "swordfish-header"},
			Auth: auth,
			TLS:  client.EndpointTLS{CA: ca, Certificate: certificate, Key: key}})
		require.NoError(t, err)
		require.Equal(t, "verified", string(e.Verification), e.VerificationError)
		rotated, err := c.RotateEndpointSecret(t.Context(), e.ID, client.SecretRotation{})
		require.NoError(t, err)
		require.NotEqual(t, e.Secret, rotated.Secret)
		secrets = append(secrets, e.Secret[6:], rotated.Secret[6:])
		tested := testedBy(t, c, e.ID)
		require.Contains(t, tested.Response.Body, "X-Key: ********")
		require.NoError(t, json.NewEncoder(&said).Encode(tested))
		failed, err := c.CreateEndpoint(t.Context(),
			client.NewEndpoint{Type: "pipe", Stage: "only", URL: repeat.URL + "/no",
				AllowDuplicate: true, Auth: auth})
		require.NoError(t, err)
		require.NotEmpty(t, failed.VerificationError)
		secrets = append(secrets, failed.Secret[6:])
		endpoints = append(endpoints, e)
	}
	ids := submitMany(t, c, 12)
	for _, id := range ids {
		task, err := c.Wait(t.Context(), id, patience)
		require.NoError(t, err)
		require.Equal(t, asyncflow.StatusFailed, task.Status)
	}

	paths := []string{"/v1/endpoints", "/v1/task-types", "/v1/stats", "/v1/tasks?type=pipe",
		"/metrics", "/v1/schedules", "/v1/operations"}
	for _, e := range endpoints {
		paths = append(paths, "/v1/endpoints/"+e.ID)
	}
	for _, id := range ids {
		paths = append(paths, "/v1/tasks/"+id, "/v1/tasks/"+id+"/attempts")
	}
	for _, path := range paths {
		req, err := http.NewRequestWithContext(t.Context(), "GET", p.url+path, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+testToken(t))
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, path)
		_, err = io.Copy(&said, resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
	}
	p.signal(syscall.SIGTERM)
	require.Equal(t, 0, p.wait())
	said.WriteString(p.said())
	require.Contains(t, said.String(), `X-Key: ********`,
		"the worker did repeat it, and that was kept")
	require.Contains(t, said.String(), "Bearer ********")
	require.Contains(t, said.String(), "msg=attempt")
	for _, secret := range secrets {
		assert.NotContains(t, said.String(), secret)
	}
}

// testPair returns the certificate and key of a TLS configuration in PEM.
func testPair(t *testing.T, config *tls.Config) (certificate, key string) {
	t.Helper()
	pair := config.Certificates[0]
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: pair.Certificate[0]})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY",
			Bytes: der}))
}

// The node secret is replaced while tasks are delivered and reported: nothing is lost, nothing
// fails, and in the end the old secret is useless.
func TestNodeSecretIsChangedUnderWay(t *testing.T) {
	t.Parallel()
	url := database(t)
	const newSecret = "fedcba9876543210fedcba9876543210"
	env := func(secret, old string) []string {
		return append(nodeEnv(url), "ASYNCFLOW_SECRET="+secret, "ASYNCFLOW_OLD_SECRETS="+old)
	}
	node := func(secret, old string) *process {
		p := start(t, env(secret, old), "serve")
		require.NotEmpty(t, p.url, p.said())
		return p
	}
	keys := func(verb, secret, old string) (int, string, string) {
		return runHere(t, map[string]string{"DATABASE_URL": url, "ASYNCFLOW_SECRET": secret,
			"ASYNCFLOW_OLD_SECRETS": old}, "keys", verb, "-o", "json")
	}
	var refused atomic.Int32
	report := make(chan delivery, 1000)
	w := startWorker(t, func(rw http.ResponseWriter, r *http.Request, d delivery) {
		if d.Stage == "later" {
			rw.WriteHeader(202)
			report <- d
		}
	})
	first := node(testSecret, "")
	spec := client.TaskTypeSpec{Stages: []asyncflow.Stage{{Name: "first"}, {Name: "later"}}}
	w.pipe(t, first.client(), spec)
	_, err := first.client().CreateEndpoint(t.Context(),
		client.NewEndpoint{Type: "pipe", Stage: "first", URL: w.URL, Secret: testWebhook,
			AllowDuplicate: true, Headers: map[string]string{"X-Key": "k"}})
	require.NoError(t, err)
	var ids []string
	submit := func(p *process) { ids = append(ids, submitMany(t, p.client(), 40)...) }
	held := func(p *process, n int) { // reports n tasks to a node; their tokens may be another's
		for range n {
			d := <-report
			path := d.Callback.URL[strings.Index(d.Callback.URL, "/v1/"):]
			req, err := http.NewRequestWithContext(t.Context(), "POST", p.url+path+"/complete", nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", "Bearer "+d.Callback.Token)
			resp, err := http.DefaultClient.Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			if resp.StatusCode != 200 {
				refused.Add(1)
			}
		}
	}
	submit(first)
	reads := node(testSecret, newSecret) // step 1, beside the first
	submit(reads)
	held(reads, 20)
	first.signal(syscall.SIGTERM)
	require.Equal(t, 0, first.wait())
	makes := node(newSecret, testSecret) // step 2, beside one with step 1
	submit(makes)
	held(reads, 20)
	held(makes, 20)
	reads.signal(syscall.SIGTERM)
	require.Equal(t, 0, reads.wait())
	code, out, errs := keys("status", newSecret, testSecret)
	require.Equal(t, 0, code, errs)
	assert.Contains(t, out, `"sealed": 4`)
	assert.Contains(t, out, `"others": 4`)
	submit(makes)
	code, out, errs = keys("reseal", newSecret, testSecret) // step 3
	require.Equal(t, 0, code, errs)
	assert.Contains(t, out, `"others": 0`)
	assert.Contains(t, out, `"resealed": 3`)
	submit(makes)
	held(makes, 140)
	awaitAll(t, makes.client(), ids)
	makes.signal(syscall.SIGTERM)
	require.Equal(t, 0, makes.wait())
	assert.Zero(t, refused.Load())

	last := node(newSecret, "") // step 4
	ids = nil
	submit(last)
	held(last, 40)
	awaitAll(t, last.client(), ids)
	code, _, errs = keys("reseal", testSecret, "")
	assert.Equal(t, 1, code, "with the old secret alone nothing can be opened")
	assert.Contains(t, errs, "ASYNCFLOW_OLD_SECRETS")
	old := start(t, env(testSecret, ""), "serve")
	assert.Empty(t, old.url)
	assert.Contains(t, old.said(), "ASYNCFLOW_SECRET is not the one")
	for _, d := range w.deliveries() {
		assert.Equal(t, 1, d.Attempt, "nothing had to be tried again")
	}
}

func TestKeysRefusesBadSecrets(t *testing.T) {
	t.Parallel()
	env := map[string]string{"DATABASE_URL": "postgres://x", "ASYNCFLOW_SECRET": testSecret,
		"ASYNCFLOW_OLD_SECRETS": "short"}
	code, _, errs := runHere(t, env, "keys", "status")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "ASYNCFLOW_OLD_SECRETS is 5 bytes; it must be at least 32")
	env["ASYNCFLOW_SECRET"], env["ASYNCFLOW_OLD_SECRETS"] = "short", ""
	code, _, errs = runHere(t, env, "keys", "reseal")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, errs, "ASYNCFLOW_SECRET is 5 bytes")
}

// An endpoint shows how long attempts took, and why they failed.
func TestEndpointLatency(t *testing.T) {
	t.Parallel()
	e := client.Endpoint{ID: "e1", Health: client.EndpointHealth{State: "closed", Attempts: 20,
		Failures: 13, Codes: client.FailureCodes{"503": 9, "timeout": 2, "404": 2},
		Latency: client.Latency{P50Ms: 38.1, P99Ms: 30444.4}}}
	env := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) { answer(w, 200, e) })
	r := runCLI(t, env, "endpoints", "get", "e1")
	require.Zero(t, r.code, r.stderr)
	assert.Regexp(t, `took +p50 38.1ms, p99 30.4444s\n`, r.stdout)
	assert.Regexp(t, `failures +9 × 503, 2 × 404, 2 × timeout\n`, r.stdout)
	assert.Regexp(t, `health +delivering\n`, r.stdout)
	e.Health = client.EndpointHealth{State: "closed"}
	r = runCLI(t, env, "endpoints", "get", "e1")
	assert.NotContains(t, r.stdout, "p50")
}

// The command line uses the same words for what an endpoint does as the console.
func TestHealthWords(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../web/src/endpoints/outage.ts")
	require.NoError(t, err)
	for _, state := range []asyncflow.HealthState{asyncflow.HealthClosed, asyncflow.HealthOpen,
		asyncflow.HealthHalfOpen, asyncflow.HealthDisabled} {
		assert.Contains(t, string(source),
			fmt.Sprintf("  %s: { word: %q, ", state, healthWord(state)))
	}
}

// The commands for endpoints run against a node that challenges endpoints, and a worker that
// echoes.
func TestEndpointCommands(t *testing.T) {
	t.Parallel()
	p := start(t, append(nodeEnv(database(t)), "ASYNCFLOW_VERIFY_ENDPOINTS=true"), "serve")
	require.NotEmpty(t, p.url, p.said())
	_, err := p.client().PutTaskType(t.Context(), "pipe", oneStage())
	require.NoError(t, err)
	webhook, err := standardwebhooks.NewWebhook(testWebhook)
	require.NoError(t, err)
	var answer atomic.Pointer[string] // to a test delivery
	w := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var c struct{ Challenge string }
		switch verified := webhook.Verify(body, r.Header) == nil &&
			json.Unmarshal(body, &c) == nil; {
		case verified && c.Challenge == "":
			rw.Header().Set("Content-Type", "application/json")
			io.WriteString(rw, *answer.Load())
		case verified:
			json.NewEncoder(rw).Encode(map[string]string{"challenge": c.Challenge})
		}
	}))
	t.Cleanup(w.Close)
	env := map[string]string{"ASYNCFLOW_URL": p.url, "ASYNCFLOW_TOKEN": testToken(t),
		"API_KEY": "swordfish"}
	run := func(want int, args ...string) string {
		t.Helper()
		code, out, errs := runHere(t, env, args...)
		require.Equal(t, want, code, "%s%s", out, errs)
		return out + errs
	}
	settings := filepath.Join(t.TempDir(), "settings.yaml")
	require.NoError(t, os.WriteFile(settings,
		[]byte("headers: {X-Api-Key: \"${API_KEY}\"}\nauth: {kind: bearer, token: "+
			"\"${API_KEY}\"}\n"),
		0o600))
	stage := oneStage().Stages[0].Name
	out := run(0, "endpoints", "create", "--type=pipe", "--stage="+stage, "--weight=5", "-f",
		settings,
		w.URL)
	assert.Contains(t, out, "unverified")
	assert.Contains(t, out, "X-Api-Key: ********")
	assert.NotContains(t, out, "swordfish")
	list, err := p.client().Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	id := list[0].ID
	assert.Equal(t, 5, list[0].Weight)
	assert.Contains(t, run(1, "endpoints", "verify", id), "didn't echo the challenge")
	assert.Contains(t, run(1, "endpoints", "test", id), "is unverified")
	assert.Contains(t, run(0, "endpoints", "rotate-secret", id, "--overlap=1h",
		"--secret="+testWebhook), "until")
	assert.Contains(t, run(0, "endpoints", "verify", id), "verified")
	answered := `{}`
	answer.Store(&answered)
	out = run(0, "endpoints", "test", id, `--context={"n": 1.10}`)
	for _, line := range []string{"outcome  done\n", "request  POST " + w.URL + "\n",
		"header   Asyncflow-Test: true\n", "header   X-Api-Key: ********\n", `"context":{"n":1.10}`,
		"answer   200 OK\n", "body     {}\n"} {
		assert.Contains(t, out, line)
	}
	answered = `{"outcome":"fail","error":"no such image"}`
	out = run(1, "endpoints", "test", id, "-o", "json")
	assert.Contains(t, out, `"outcome": "rejected"`)
	assert.Contains(t, out, "the outcome is rejected: no such image")
	assert.Contains(t, run(2, "endpoints", "test", id, "--context={"),
		"the context is not valid JSON")
	assert.Contains(t, run(0, "endpoints", "rotate-secret", id, "--overlap=0s", "--kind=ed25519"),
		"ed25519 whpk_")
	out = run(0, "endpoints", "update", id, "--weight=0", "--max-in-flight=5", "--rate=100/s",
		"--batch=50", "--batch-wait=0.02s")
	assert.Contains(t, out, "5 in flight, 100/s, 50 in a request, waiting 0.02s for others")
	assert.Contains(t, run(0, "endpoints", "list"), "5 in flight, 100/s")
	assert.Contains(t, run(1, "endpoints", "update", id, "--batch-wait=1s"), "batch.max_tasks")
	out = run(0, "endpoints", "update", id, "--max-in-flight=0", "--rate=", "--batch=0")
	assert.NotContains(t, out, "in flight")
	assert.NotContains(t, out, "in a request")
	assert.Contains(t, run(1, "endpoints", "update", id, "--rate=5"), `rate is "5"; it must be`)
	assert.Contains(t, run(2, "endpoints", "create", "--type=pipe", "--stage="+stage, "--rate=5/d",
		w.URL), "--rate must be a rate such as")
	out = run(0, "endpoints", "create", "--type=pipe", "--stage="+stage, "--allow-duplicate",
		"--weight=0", "--max-in-flight=7", "--rate=10/h", "-o", "json", w.URL)
	var made client.Endpoint
	require.NoError(t, json.Unmarshal([]byte(out), &made))
	assert.Equal(t, 7, made.MaxInFlight)
	assert.Equal(t, asyncflow.Rate{Count: 10, Per: time.Hour}, made.Rate)
	assert.Contains(t, run(0, "endpoints", "enable", made.ID), "delivering")
	run(0, "endpoints", "delete", made.ID)
	require.NoError(t, os.WriteFile(settings, []byte("headers: {}\nauth: {kind: none}\n"), 0o600))
	out = run(0, "endpoints", "update", id, "-f", settings)
	assert.NotContains(t, out, "X-Api-Key")
	require.NoError(t, os.WriteFile(settings, []byte("header: {}\n"), 0o600))
	assert.Contains(t, run(2, "endpoints", "update", id, "-f", settings),
		"header is not known here")
	assert.Contains(t, run(0, "endpoints", "list"), "unverified"[2:])
	e, err := p.client().Endpoint(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, 0, e.Weight)
}

// A node reports an endpoint that is down, and the tasks that wait for it. An endpoint that
// answers with 410 is disabled until it is enabled.
func TestHealthOfEndpoints(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	p := sharedNode(t)
	c := p.client()
	var back atomic.Bool
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, _ delivery) {
		if !back.Load() {
			rw.WriteHeader(http.StatusGone)
		}
	})
	spec := oneStage()
	spec.Stages[0].Retry.MaxAttempts = 100
	_, err := c.PutTaskType(t.Context(), "pipe", spec)
	require.NoError(t, err)
	dead, err := c.CreateEndpoint(t.Context(),
		client.NewEndpoint{Type: "pipe", Stage: "only", URL: closedURL(t)})
	require.NoError(t, err)
	assert.Equal(t, client.EndpointHealth{State: asyncflow.HealthClosed}, dead.Health)
	ids := submitMany(t, c, 30)
	waits := func() bool {
		task, err := c.Get(t.Context(), ids[29])
		require.NoError(t, err)
		return string(task.WaitsFor) == string(asyncflow.WaitUnhealthy)
	}
	require.Eventually(t, func() bool {
		e, err := c.Endpoint(t.Context(), dead.ID)
		require.NoError(t, err)
		if e.Health.State != asyncflow.HealthOpen || e.Health.Attempts < asyncflow.FailuresToOpen ||
			!waits() {
			return false
		}
		assert.Contains(t, e.Health.Reason, "connection refused")
		assert.True(t, e.Health.Until.After(e.Health.Since))
		assert.Equal(t, e.Health.Attempts, e.Health.Failures)
		return true
	}, patience, 20*time.Millisecond, p.said())
	code, out, errs := runHere(t, map[string]string{"ASYNCFLOW_URL": p.url,
		"ASYNCFLOW_TOKEN": p.token()}, "endpoints", "get", dead.ID)
	require.Equal(t, 0, code, errs)
	assert.Contains(t, out, "connection refused")
	for _, command := range [][]string{{"tasks", "get", ids[29]}, {"stats", "--type", "pipe"}} {
		require.Eventually(t, func() bool { // while one is tried, it may be this one
			code, out, errs := runHere(t, map[string]string{"ASYNCFLOW_URL": p.url,
				"ASYNCFLOW_TOKEN": p.token()}, command...)
			require.Equal(t, 0, code, errs)
			return regexp.MustCompile("Deliveries to " + regexp.QuoteMeta(dead.URL) +
				" have stopped until .*: .*connection refused").MatchString(out)
		}, patience, 20*time.Millisecond, command)
	}

	gone, err := c.CreateEndpoint(t.Context(),
		client.NewEndpoint{Type: "pipe", Stage: "only", URL: w.URL, Secret: testWebhook})
	require.NoError(t, err)
	require.NoError(t, c.DeleteEndpoint(t.Context(), dead.ID))
	require.Eventually(t, func() bool {
		e, err := c.Endpoint(t.Context(), gone.ID)
		require.NoError(t, err)
		stats, err := c.Stats(t.Context(), "pipe")
		require.NoError(t, err)
		return e.Health.State == asyncflow.HealthDisabled && waits() && stats[0].Running == 0
	}, patience, 20*time.Millisecond, p.said())
	n := len(w.deliveries())
	back.Store(true)
	require.Never(t, func() bool { return len(w.deliveries()) > n }, 2*asyncflow.RampStep,
		100*time.Millisecond)
	enabled, err := c.EnableEndpoint(t.Context(), gone.ID)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.HealthClosed, enabled.Health.State)
	awaitAll(t, c, ids)
}
