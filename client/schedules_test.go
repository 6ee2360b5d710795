package client

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestSchedules(t *testing.T) {
	t.Parallel()
	var bodies []string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		switch {
		case len(raw) > 0:
			bodies = append(bodies, string(raw))
			writeJSON(w, 201, Schedule{Name: "a", Version: 1})
		case r.Method == http.MethodDelete:
			w.WriteHeader(204)
		case strings.HasSuffix(r.RequestURI, "/trigger"):
			writeJSON(w, 201, taskN(7))
		case r.RequestURI == "/v1/schedules":
			writeJSON(w, 200, ScheduleList{Data: []Schedule{{Name: "a"}, {Name: "b"}}})
		default:
			writeJSON(w, 200, Schedule{Name: "a", Version: 2})
		}
	})
	c, ctx := f.client(t), t.Context()
	spec := ScheduleSpec{Type: "t", Context: JSON(`"<"`), Cron: "@daily", Overlap: OverlapSkip}
	s, err := c.PutSchedule(ctx, "a", spec)
	require.NoError(t, err)
	require.Equal(t, 1, s.Version)
	_, err = c.CheckSchedule(ctx, "a", spec)
	require.NoError(t, err)
	for _, body := range bodies {
		require.Contains(t, body, `"<"`)
		require.JSONEq(t, `{"type":"t","context":"<","cron":"@daily","overlap":"skip"}`, body)
	}
	_, err = c.PutSchedule(ctx, "a", ScheduleSpec{Type: "t"})
	require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	all, err := c.Schedules(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, call := range []func(name string) error{
		func(name string) error { _, err := c.Schedule(ctx, name); return err },
		func(name string) error { _, err := c.PauseSchedule(ctx, name); return err },
		func(name string) error { _, err := c.ResumeSchedule(ctx, name); return err },
		func(name string) error { _, err := c.TriggerSchedule(ctx, name); return err },
		func(name string) error { return c.DeleteSchedule(ctx, name) },
	} {
		require.NoError(t, call("a"))
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(call("..")))
	}
	require.Equal(t,
		[]string{"PUT /v1/schedules/a", "PUT /v1/schedules/a?dry_run=true", "GET /v1/schedules",
			"GET /v1/schedules/a",
			"POST /v1/schedules/a/pause", "POST /v1/schedules/a/resume",
			"POST /v1/schedules/a/trigger",
			"DELETE /v1/schedules/a"}, f.requests())
}
