package main

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Workers on a real node are listed by the names that they give in their answers.
func TestCLIWorkers(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, _ delivery) {
		rw.Header().Set(asyncflow.WorkerHeader, "worker-7f9c")
		rw.WriteHeader(http.StatusUnprocessableEntity)
	})
	c := node.client()
	w.pipe(t, c, client.TaskTypeSpec{Stages: []client.Stage{{Name: "only",
		Retry: client.RetryPolicy{MaxAttempts: 1}}}})
	run := clientOf(t, node)
	assert.NotContains(t, run(0, "workers"), "pipe")
	for _, id := range submitMany(t, c, 5) {
		_, err := c.Wait(t.Context(), id, patience)
		require.NoError(t, err)
	}
	report, err := c.Workers(t.Context(), client.WorkerParams{Type: "pipe"})
	require.NoError(t, err)
	require.Len(t, report.Workers, 1)
	assert.Equal(t, 5, report.Workers[0].Failures)
	assert.Regexp(t, `(?m)^worker-7f9c +failing +0 +\S+Z +5 +5 +0 +\S+s +\S+s +pipe/only +`+w.URL,
		run(0, "workers", "--type", "pipe", "--since", "10m"))
	run(1, "workers", "--since", "48h")
}

// A sample says that it is one, and what isn't shown.
func TestWorkersOfASample(t *testing.T) {
	t.Parallel()
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "1", r.URL.Query().Get("limit"))
		answer(w, 200, client.WorkerReport{Count: 3,
			Workers: []client.WorkerHealth{
				{Type: "pipe", Stage: "only", State: "well", Attempts: 7}}})
	})
	r := runCLI(t, env, "workers", "--limit", "1")
	require.Zero(t, r.code, r.stderr)
	assert.Regexp(t, `(?m)^- +well +0 +- +7 +0 +0 +- +- +pipe/only +-$`, r.stdout)
	assert.Contains(t, r.stderr, "a sample of 0 attempts")
	assert.Contains(t, r.stderr, "2 more workers: see --limit")
}
