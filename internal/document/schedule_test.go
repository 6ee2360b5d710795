package document_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/document"
)

func TestScheduleDocument(t *testing.T) {
	t.Parallel()
	doc, err := document.Parse([]byte(`
schedules:
  - name: nightly
    type: thumbnails
    context: {image: "${DIR}/a<b.jpg", sizes: [1, 2.5, "${N}"], since: 2026-11-21T10:00:00Z, `+
		`"${DIR}": null}
    cron: 30 3 * * *
    time_zone: ${ZONE}
    overlap: skip
    catch_up: all
    catch_up_limit: 7
    starts_at: 2026-11-21T10:00:00+01:00
    retry: {max_attempts: 2}
    priority: [60, 0]
  - {name: often, type: other, context: 5, every: 10m}
`), envOf(map[string]string{"DIR": "/in", "N": "3", "ZONE": "Europe/Berlin"}))
	require.NoError(t, err)
	require.Len(t, doc.Schedules, 2)
	s := doc.Schedules[0]
	require.Equal(t,
		`{"image":"/in/a<b.jpg","sizes":[1,2.5,"3"],"since":"2026-11-21T10:00:00Z","${DIR}":null}`,
		string(s.Context))
	s.Context = nil
	require.True(t, s.StartsAt.Equal(time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)))
	s.StartsAt = time.Time{}
	require.Equal(t, document.Schedule{Name: "nightly",
		ScheduleSpec: client.ScheduleSpec{Type: "thumbnails", Cron: "30 3 * * *",
			TimeZone: "Europe/Berlin",
			Overlap:  client.OverlapSkip, CatchUp: client.CatchUpAll, CatchUpLimit: 7,
			Retry: client.RetryPolicy{MaxAttempts: 2}, Priority: client.Priority{60, 0}}}, s)
	require.Equal(t, client.NewDuration(10*time.Minute), doc.Schedules[1].Every)
}

func TestScheduleDocumentProblems(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, want string }{
		{"{name: a, type: t, every: 1h}", "schedules[0].context is required"},
		{"{name: a, type: t, context: 1, every: 1h, at: noon}",
			"schedules[0].at is not known here; the keys are catch_up, catch_up_limit, claim, " +
				"context, context_from, cron, depends_on, end_by, ends_at, every, metadata,"},
		{"{name: A, type: t, context: 1, every: 1h}",
			"schedules[0].name must start with a lower-case letter"},
		{"{name: a, type: t, context: 1, cron: '* * * *'}",
			"schedules[0].cron has 4 fields; it must have five"},
		{"{name: a, type: t, context: 1, cron: '@daily', time_zone: Mars/Base}",
			`schedules[0].time_zone is "Mars/Base", which is not a time zone`},
		{"{name: a, type: t, context: 1, every: 1h, overlap: wait}",
			`schedules[0].overlap is "wait"; it must be skip, queue or replace`},
		{"{name: a, type: t, context: {x: ['${NO}']}, every: 1h}",
			"schedules[0].context.x[0] names the environment variable NO, which is not set"},
		{"{name: a, type: t, context: {1: 2}, every: 1h}",
			"schedules[0].context.1 is a key that is not a text: put it in quotes"},
		{"{name: a, type: t, context: 1, every: 1h}, {name: a, type: t, context: 1, every: 1h}",
			`schedules[1].name is "a", which an earlier schedule has`},
	} {
		t.Run(tc.text, func(t *testing.T) {
			_, err := document.Parse([]byte("schedules: ["+tc.text+"]"), envOf(nil))
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			require.ErrorContains(t, err, tc.want)
			var all *document.Error
			require.ErrorAs(t, err, &all)
			require.Len(t, all.Fields, 1, "%v", err)
		})
	}
}
