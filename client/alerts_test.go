package client

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFiringAlerts(t *testing.T) {
	t.Parallel()
	want := FiringAlerts{Enabled: true, Data: []AlertEpisode{{ID: "e", Alert: "backlog_age",
		State: "firing", Subject: "t", Since: time.Unix(1, 0).UTC(), Value: 2, Limit: 1}}}
	f := newFake(t, func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, want) })
	firing, err := f.client(t).FiringAlerts(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, firing)
	require.Equal(t, []string{"GET /v1/alerts/firing"}, f.requests())
}
