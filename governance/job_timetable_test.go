package governance_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

func TestCheckTimetable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ job, spec, says string }{
		{"rescue", "@every 5s", ""},
		{"rescue", "@hourly", ""},
		{"forget", "@every 1d", ""},
		{"forget", "@every 1w12h", ""},
		{"forget", "@every 1y", "must be like @every 5s"},
		{"fold", "0,30 3 * * 1-5", ""},
		{"forget", governance.Off, ""},
		{"fold", "CRON_TZ=Asia/Tokyo 5 3 * * *", ""},
		{"fold", "CRON_TZ=Asia/Tokyo", "must be like @every 5s"},
		{"nope", "@every 5s", `job is "nope"; the jobs are rescue, promote, vacuum,`},
		{"rescue", "", "must be like @every 5s"},
		{"rescue", "5s", "must be like @every 5s"},
		{"rescue", "* * * * * *", "must be like @every 5s"},
		{"rescue", "@every 0s", "the shortest is @every 1s"},
		{"rescue", "@every -5s", "the shortest is @every 1s"},
		{"rescue", "@every 999ms", "the shortest is @every 1s"},
	} {
		t.Run(tc.job, func(t *testing.T) {
			err := governance.CheckTimetable(map[string]string{tc.job: tc.spec})
			if tc.says == "" {
				require.NoError(t, err, tc.spec)
				return
			}
			require.ErrorContains(t, err, tc.says, tc.spec)
			assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		})
	}
}

// Cron specs are read in UTC, wherever the node stands.
func TestNext(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(text string) time.Time {
		parsed, err := time.Parse(time.RFC3339, text)
		require.NoError(t, err)
		return parsed
	}
	for _, tc := range []struct {
		name, spec string
		last       time.Time
		want       time.Time
	}{
		{"its next one", "@every 1m", now.Add(-20 * time.Second), at("2026-11-21T12:00:40Z")},
		{"days", "@every 1d12h", now.Add(-time.Hour), at("2026-11-22T23:00:00Z")},
		{"some went unrecorded", "@every 5s", now.Add(-time.Minute), at("2026-11-21T12:00:05Z")},
		{"it never ran", "@every 5s", time.Time{}, at("2026-11-21T12:00:05Z")},
		{"cron", "30 3 * * *", now, at("2026-11-22T03:30:00Z")},
		{"seen from elsewhere", "30 3 * * *", now.In(time.FixedZone("far", 9*3600)),
			at("2026-11-22T03:30:00Z")},
		{"off", governance.Off, now, time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			assert.Equal(t, tc.want,
				governance.Next(tc.spec, tc.last, now.In(time.FixedZone("here", -5*3600))))
		})
	}
}

// The status also shows jobs that are off, and jobs that never ran.
func TestStatus(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a",
		governance.Config{Timetable: map[string]string{"rescue": governance.Off,
			"fold": "0 4 * * *"}})
	exec(t, url,
		`INSERT INTO asyncflow.nodes VALUES ('a', 'api,governance', 'v1', now() - interval '1 h', now()),
		('b', 'dispatcher', 'v1', now() - interval '2 h', now() - interval '16 s')`)
	before, err := governance.ReadStatus(t.Context(), b.Store)
	require.NoError(t, err)
	require.Len(t, before.Jobs, len(b.gov.Jobs()))
	assert.Equal(t, "@every 1s", before.Jobs[0].Spec,
		"its own, while no node has announced another")
	b.start(t, b.gov.Jobs()...)
	require.Eventually(t, func() bool {
		return !b.recorded(t, "promote").Started.IsZero()
	}, patience,
		10*time.Millisecond)
	status, err := governance.ReadStatus(t.Context(), b.Store)
	require.NoError(t, err)
	for i, job := range status.Jobs {
		assert.Equal(t, b.gov.Jobs()[i].Name, job.Name, "in their order")
		switch job.Name {
		case "rescue":
			assert.Equal(t, governance.Off, job.Spec)
			assert.True(t, job.Started.IsZero() && job.Next.IsZero())
		case "fold":
			assert.Equal(t, "0 4 * * *", job.Spec)
			assert.Equal(t, 4, job.Next.Hour())
		case "promote":
			assert.Equal(t, "a", job.Node)
			assert.True(t, job.Next.After(job.Started))
		}
	}
	require.Len(t, status.Nodes, 2)
	assert.Equal(t, "b", status.Nodes[0].ID, "by their start")
	assert.True(t, status.Nodes[0].Gone)
	assert.False(t, status.Nodes[1].Gone)
	exec(t, url, `UPDATE asyncflow.nodes SET seen_at = now() - interval '1 min'`)
	status, err = governance.ReadStatus(t.Context(), b.Store)
	require.NoError(t, err)
	for _, job := range status.Jobs {
		assert.True(t, job.Next.IsZero(), "nobody is there to run it")
	}
}
