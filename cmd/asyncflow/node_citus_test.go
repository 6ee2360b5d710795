package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// A task that was answered with 201 is done even if the coordinator, each worker of Citus and a
// node beside are killed under load, one after the other.
func TestKilledCitus(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("make citus-test runs it")
	}
	t.Parallel()
	servers, url := pgtest.Citus(t)
	require.NoError(t, prepareDatabase(t.Context(), url))
	a := startNode(t, url)
	var kills []func()
	for range longform.Size(1, 5) {
		for i, server := range servers {
			kills = append(kills, func() {
				require.NoError(t, servers[i].Kill())
				servers[i] = pgtest.Server(t, server.Config())
			})
		}
		kills = append(kills, startNode(t, url).kill)
	}
	a.survives(kills...)
}
