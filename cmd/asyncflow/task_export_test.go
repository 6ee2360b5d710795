package main

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Tasks are exported from a real node, as JSON lines and as CSV, and waiting ones run now.
func TestCLIExportAndRunNow(t *testing.T) {
	t.Parallel()
	node := sharedNode(t)
	c := node.client()
	_, err := c.PutTaskType(t.Context(), "pipe",
		client.TaskTypeSpec{Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	batch := make([]client.NewTask, pageSize+1)
	for i := range batch {
		batch[i] = client.NewTask{Type: "pipe", Context: client.JSON(`1`),
			Delay: client.NewDuration(time.Hour)}
	}
	_, err = c.SubmitMany(t.Context(), batch)
	require.NoError(t, err)
	one, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Key: "=1+1", User: "ada",
		Context: client.JSON(`1`), Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	run := clientOf(t, node)
	lines := strings.Split(strings.TrimSpace(run(0, "tasks", "export", "--type", "pipe")), "\n")
	require.Len(t, lines, pageSize+2)
	var first client.Task
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &first))
	assert.Equal(t, []string{one.ID, "=1+1"}, []string{first.ID, first.Key})
	rows, err := csv.NewReader(strings.NewReader(
		run(0, "tasks", "export", "--user", "ada", "--format", "csv"))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, exportColumns, rows[0])
	assert.Equal(t, []string{one.ID, "pipe", "waiting", "only"}, rows[1][:4])
	assert.Equal(t, "'=1+1", rows[1][9])

	assert.Contains(t, run(0, "tasks", "run-now", "--type", "pipe", "--status", "waiting",
		"--dry-run"), "502 tasks")
	assert.Contains(t, run(0, "tasks", "run-now", "--type", "pipe", "--status", "waiting"),
		"done      502")
	late, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: client.JSON(`1`),
		Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	assert.Contains(t, run(0, "tasks", "run-now", late.ID), late.ID)
	hurried, err := c.Get(t.Context(), late.ID)
	require.NoError(t, err)
	assert.NotEqual(t, asyncflow.WaitDelay, hurried.WaitsFor)
	run(exitUsage, "tasks", "run-now")
	run(exitNotFound, "tasks", "export", "--type", "nope")
}
