package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
)

// Failures on a real node are shown by their errors, with the fingerprint to go on.
func TestCLIFailures(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		rw.WriteHeader(http.StatusUnprocessableEntity)
		_, err := fmt.Fprintf(rw, "order %s has no item", d.Context)
		assert.NoError(t, err)
	})
	c := node.client()
	w.pipe(t, c, client.TaskTypeSpec{Stages: []client.Stage{{Name: "only",
		Retry: client.RetryPolicy{MaxAttempts: 1}}}})
	run := clientOf(t, node)
	assert.NotContains(t, run(0, "failures"), "pipe")
	for _, id := range submitMany(t, c, 3) {
		_, err := c.Wait(t.Context(), id, patience)
		require.NoError(t, err)
	}
	report, err := c.Failures(t.Context(), client.FailureParams{Type: "pipe"})
	require.NoError(t, err)
	require.Len(t, report.Groups, 1)
	fingerprint := report.Groups[0].Fingerprint
	assert.Regexp(t, `(?m)^3 +[.▁-█]{24} .* 422 +pipe/only +`+fingerprint+` +# Unprocessable Entity`+
		`: order # has no item$`, run(0, "failures", "--since", "15m", "--newest"))
	assert.Equal(t, "3 tasks\n", run(0, "tasks", "count", "--fingerprint", fingerprint))
	begun := run(0, "tasks", "redrive", "--all-types", "--fingerprint", fingerprint, "--yes",
		"--detach")
	assert.Regexp(t, `(?m)^filter +.*fingerprint `+fingerprint, begun)
	run(1, "tasks", "list", "--fingerprint", "x")
}

func TestBars(t *testing.T) {
	t.Parallel()
	assert.Equal(t, ".▁▄█", bars([]int{0, 1, 50, 100}))
	assert.Equal(t, "..", bars([]int{0, 0}))
	assert.Equal(t, "█.", bars([]int{1, 0}))
}
