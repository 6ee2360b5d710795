package httpapi_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Callers of a node with a silent database get an answer in time, and a success once the
// network works again.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	var network *pgtest.Network
	b := setupOn(t, func(c *store.Config) { network, c.URL = pgtest.Behind(t, c.URL) },
		func(*httpapi.Config) {})
	b.pipe()
	task := read[api.SubmittedTask](b, 201,
		b.call(http.MethodPost, "/v1/tasks", `{"type":"pipe","context":1}`))
	_, report := b.lease()
	network.Silence()
	const spare = 30 * time.Second // for a slow machine
	var wg sync.WaitGroup
	for _, c := range []struct {
		token, method, path, body string
		limit                     time.Duration
	}{
		{b.token, "GET", "/v1/tasks/" + task.ID, "", 20 * time.Second},
		{b.token, "GET", "/v1/tasks?type=pipe", "", 30 * time.Second},
		{b.token, "POST", "/v1/tasks", `{"type":"pipe","context":1}`, 10 * time.Second},
		{b.token, "POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"k"}`, 10 * time.Second},
		{b.token, "POST", "/v1/task-types/pipe/pause", ``, 30 * time.Second},
		{report, "POST", "/v1/callbacks/" + task.ID + "/heartbeat", ``, 30 * time.Second},
		{"", "GET", "/readyz", "", 2 * time.Second},
	} {
		wg.Go(func() {
			began := time.Now()
			a := b.callAs(c.token, c.method, c.path, c.body)
			assert.Equal(t, 503, a.status, "%s %s", c.method, c.path)
			assert.NotEmpty(t, a.header.Get("Retry-After"), "%s %s", c.method, c.path)
			assert.Less(t, time.Since(began), c.limit+spare, "%s %s", c.method, c.path)
		})
	}
	wg.Wait()
	network.Heal()
	assert.Eventually(t, func() bool { return b.callAs("", "GET", "/readyz", "").status == 200 },
		patience, 100*time.Millisecond)
	reported := func() bool { // again
		return b.callAs(report, "POST", "/v1/callbacks/"+task.ID+"/complete", `{}`).status == 200
	}
	if pgtest.ThroughPooler() { // it opens silent connections of its own
		assert.Eventually(t, reported, patience, 100*time.Millisecond)
	}
	assert.True(t, reported())
	assert.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"pipe","context":1}`).status)
}
