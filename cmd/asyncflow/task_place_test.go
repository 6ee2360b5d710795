package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/client/api"
)

// A running task is shown with where it runs, since when, and its last heartbeat.
func TestRunText(t *testing.T) {
	t.Parallel()
	assert.Empty(t, runText(nil))
	assert.Empty(t, heartbeatText(nil))
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	wait := float32(1500)
	run := &api.TaskRun{Since: at, WaitMs: &wait, Node: "node-1", Worker: "worker-1",
		Endpoint: "https://w.example.com", LastHeartbeat: at.Add(time.Minute)}
	assert.Equal(t, "since 2026-11-21T10:00:00.000Z, after a wait of 1.5s, worker worker-1, "+
		"https://w.example.com, node node-1", runText(run))
	assert.Equal(t, "2026-11-21T10:01:00.000Z", heartbeatText(run))
	claimed := &api.TaskRun{Since: at, Node: "node-1", Claimer: "anna"}
	assert.Equal(t, "since 2026-11-21T10:00:00.000Z, claimed by anna, node node-1",
		runText(claimed))
}
