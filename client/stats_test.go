package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestStats(t *testing.T) {
	t.Parallel()
	want := []Stats{{Type: "t", Pending: 3, Rates: Rates{Submitted: 0.5}, Rolls: 1}}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, 200, api.StatsList{Data: want})
	})
	for _, taskType := range []string{"", "t"} {
		stats, err := f.client(t).Stats(t.Context(), taskType)
		require.NoError(t, err)
		require.Equal(t, want, stats)
	}
	require.Equal(t, []string{"GET /v1/stats", "GET /v1/stats?type=t"}, f.requests())
}

func TestScale(t *testing.T) {
	t.Parallel()
	want := Scale{Type: "t", Stage: "s", Slots: 3, Target: asyncflow.NewDuration(time.Minute)}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, want) })
	for _, target := range []time.Duration{0, 5 * time.Minute} {
		scale, err := f.client(t).Scale(t.Context(), "t", "s", target)
		require.NoError(t, err)
		require.Equal(t, want, scale)
	}
	_, err := f.client(t).Scale(t.Context(), "t", "", 0)
	require.NoError(t, err)
	require.Equal(t, []string{"GET /v1/stats/t/scale?stage=s",
		"GET /v1/stats/t/scale?stage=s&target=5m0s", "GET /v1/stats/t/scale"}, f.requests())
}

func TestNodeCounts(t *testing.T) {
	t.Parallel()
	want := NodeCounts{Alive: 3, Gone: 1, Versions: []string{"0.1.0"},
		Roles: api.NodeRoles{API: 2, Dispatcher: 3}}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, want) })
	n, err := f.client(t).NodeCounts(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, n)
	require.Equal(t, []string{"GET /v1/nodes"}, f.requests())
}
