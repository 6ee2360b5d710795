package main

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// someStats are the stats of two types. There is a backlog of the second one.
func someStats() client.StatsList {
	return client.StatsList{Data: []client.Stats{
		{Type: "idle", Paused: true, Rolls: 1, Wait: client.Latency{P50Ms: 12, P99Ms: 3400}},
		{Type: "mail", Waiting: 1, Pending: 2, Running: 3, Succeeded: 4000, Failed: 5, Expired: 4,
			Cancelled: 6, OldestDue: time.Now().Add(-90 * time.Minute),
			Rates: client.Rates{Submitted: 10.25, Attempts: 9, Failures: 0.5, Snoozes: 2.5,
				Finished: 8},
			Rolls:      7,
			Latency:    client.Latency{P50Ms: 38.1, P99Ms: 2345.6},
			Turnaround: client.Latency{P50Ms: 131, P99Ms: 6260},
			Backlog: []client.Backlog{{WaitsFor: "endpoint_unhealthy", Stage: "send", Tasks: 600},
				{WaitsFor: "capacity", Tasks: 2}}},
	}}
}

func TestStatsTable(t *testing.T) {
	t.Parallel()
	var asked string
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.RequestURI
		answer(w, 200, someStats())
	})
	r := runCLI(t, env, "stats")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "/v1/stats", asked)
	lines := strings.Split(r.stdout, "\n")
	require.Len(t, lines, 4)
	require.Equal(t,
		strings.Fields("TYPE WAITING PENDING RUNNING SUCCEEDED FAILED EXPIRED CANCELLED "+
			"OLDEST-DUE IN/s OUT/s FAILURES/s SNOOZES/s P50 P99 WAIT-P50 WAIT-P99 TASK-P50 TASK-P99 ROLLS "+
			"BACKLOG"), strings.Fields(lines[0]))
	require.Equal(t,
		strings.Fields("idle (paused) 0 0 0 0 0 0 0 - 0.0 0.0 0.0 0.0 - - 12ms 3.4s - - 1 -"),
		strings.Fields(lines[1]))
	require.Regexp(t,
		`^mail +1 +2 +3 +4000 +5 +4 +6 +1h30m\d+s +10.2 +8.0 +0.5 +2.5 +38.1ms +2.3456s +- +- `+
			`+131ms +6.26s +7 +600 endpoint_unhealthy \(send\), 2 capacity$`, lines[2])
}

func TestStatsJSON(t *testing.T) {
	t.Parallel()
	var asked string
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.RequestURI
		answer(w, 200, client.StatsList{Data: someStats().Data[:1]})
	})
	r := runCLI(t, env, "stats", "--type", "idle", "-o", "json")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "/v1/stats?type=idle", asked)
	require.JSONEq(t,
		`{"data":[{"type":"idle","paused":true,"waiting":0,"pending":0,"running":0,"succeeded":0,
		"failed":0,"cancelled":0,
		"rates":{"submitted":0,"attempts":0,"failures":0,"snoozes":0,"finished":0},"rolls":1,
		"wait":{"p50_ms":12,"p99_ms":3400}}]}`, r.stdout)
}

// With a clock behind the server's, nothing is due in the future.
func TestStatsOfTheFuture(t *testing.T) {
	t.Parallel()
	at := time.Now()
	require.Equal(t, "0s", statsRow(client.Stats{OldestDue: at.Add(time.Minute)}, at)[8])
}

func TestStatsWatch(t *testing.T) {
	t.Parallel()
	for name, terminal := range map[string]bool{"a terminal": true, "a file": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, stop := context.WithCancel(t.Context())
			asked := 0
			env := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
				if asked++; asked == 4 {
					stop() // while it asks
				}
				answer(w, 200, someStats())
			})
			api, err := client.New(env["ASYNCFLOW_URL"], "a-token")
			require.NoError(t, err)
			var out bytes.Buffer
			c := &statsCmd{Watch: true}
			require.NoError(t, c.watch(ctx, &globals{stdout: &out, output: "table", api: api},
				terminal, time.Millisecond))
			require.Equal(t, 3, strings.Count(out.String(), "TYPE"))
			want := 0
			if terminal {
				want = 3
			}
			require.Equal(t, want, strings.Count(out.String(), clearScreen))
		})
	}
}

// A watch ends when it is refused.
func TestStatsWatchRefused(t *testing.T) {
	t.Parallel()
	env := serveAPI(t,
		func(w http.ResponseWriter, _ *http.Request) { answerProblem(w, 404, "not_found") })
	r := runCLI(t, env, "stats", "--type", "nope", "--watch")
	require.Equal(t, exitNotFound, r.code)
	require.Contains(t, r.stderr, "it is so")
}

func TestStatsAutoscale(t *testing.T) {
	t.Parallel()
	var asked string
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.RequestURI
		answer(w, 200, client.Scale{Type: "mail", Stage: "send", Slots: 15, Running: 4,
			Backlog: 600, StartedPerSecond: 2.5, ServiceMs: 1200,
			Target: asyncflow.NewDuration(5 * time.Minute)})
	})
	r := runCLI(t, env, "stats", "--autoscale", "mail/send", "--target", "5m")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "/v1/stats/mail/scale?stage=send&target=5m0s", asked)
	require.Equal(t, strings.Fields("type mail stage send slots 15 running 4 backlog 600 "+
		"started/s 2.5 attempt 1.2s target 5m0s"), strings.Fields(r.stdout))

	for _, args := range [][]string{{"--autoscale", "mail/send", "--watch"}, {"--target", "5m"},
		{"--autoscale", "mail/send", "--type", "mail"}} {
		r := runCLI(t, env, append([]string{"stats"}, args...)...)
		require.Equal(t, 2, r.code, r.stderr)
		require.Contains(t, r.stderr, args[0])
	}
}

func TestStatsHistory(t *testing.T) {
	t.Parallel()
	var asked url.Values
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	h := client.StatsHistory{Type: "mail", From: at, Until: at.Add(time.Hour),
		Step:     asyncflow.NewDuration(5 * time.Minute),
		Recorded: []client.HistorySpan{{From: at, Until: at.Add(time.Hour)}},
		Points: []client.HistoryPoint{
			{At: at, Submitted: 8, Failed: 1, Backlog: map[string]int64{"retry": 2, "capacity": 3}},
			{At: at.Add(55 * time.Minute), Submitted: 1, Wait: client.HistoryTimes{P99Ms: 1500}}},
		Marks: []client.HistoryMark{{At: at, Kind: "deploy", Type: "mail", Text: "version \x1b7"}}}
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query()
		answer(w, 200, h)
	})
	r := runCLI(t, env, "stats", "--type", "mail", "--history", "--since", "24h", "--step", "5m")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "5m0s", asked.Get("step"))
	from, err := time.Parse(time.RFC3339, asked.Get("from"))
	require.NoError(t, err)
	require.InDelta(t, 24*time.Hour, time.Since(from), float64(time.Hour))
	lines := strings.Split(r.stdout, "\n")
	require.Len(t, lines, 5, r.stdout)
	require.Equal(t, strings.Fields("2026-11-21T10:00:00.000Z 8 0 1 0 0 0 5 0 - - - - -"),
		strings.Fields(lines[1]))
	require.Contains(t, lines[2], "1.5s")
	require.Contains(t, lines[3], "deploy mail: version")
	require.NotContains(t, r.stdout, "\x1b", "nothing that a terminal would obey")

	var out bytes.Buffer
	require.NoError(t, (&globals{stdout: &out}).printHistoryChart(h))
	lines = strings.Split(out.String(), "\n")
	require.Equal(t, "submitted   █          ▂  at most 8", lines[0])
	require.Equal(t, "failed      █             at most 1", lines[1])
	require.Equal(t, "backlog     █             at most 5", lines[2])
	require.Equal(t, "wait p99               █  at most 1.5s", lines[3])
	require.NotContains(t, out.String(), "no node recorded")
	h.Recorded[0].From = at.Add(40 * time.Minute)
	out.Reset()
	require.NoError(t, (&globals{stdout: &out}).printHistoryChart(h))
	require.Contains(t, out.String(), "submitted   █·······   ▂  at most 8")
	require.Contains(t, out.String(), "·: no node recorded")
	h.Until, h.Step = at.Add(24*time.Hour), asyncflow.NewDuration(time.Minute)
	out.Reset()
	require.NoError(t, (&globals{stdout: &out}).printHistoryChart(h))
	require.Contains(t, out.String(), "20m0s a column", "1,440 points in 72 columns")

	for _, args := range [][]string{{"--history", "--watch"}, {"--since", "5m"}, {"--step", "5m"},
		{"--history", "--autoscale", "mail/send"}, {"--history", "--stage", "send"},
		{"--history", "--since", "-1h"}, {"--by-type"}, {"--history", "--by-type", "--type", "x"}} {
		r := runCLI(t, env, append([]string{"stats"}, args...)...)
		require.Equal(t, 2, r.code, r.stderr)
	}
}

// With --by-type there is a line for each type: numbers, and blocks of what it did over time.
func TestStatsHistoryByType(t *testing.T) {
	t.Parallel()
	var asked url.Values
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	env := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query()
		answer(w, 200, client.StatsHistory{From: at, Until: at.Add(time.Hour),
			Step: asyncflow.NewDuration(5 * time.Minute),
			Types: []client.TypePoints{{Type: "mail", Points: []client.HistoryPoint{
				{At: at, Submitted: 8, Succeeded: 4, Failed: 1,
					Backlog: map[string]int64{"retry": 2, "capacity": 3}},
				{At: at.Add(55 * time.Minute), Submitted: 1, Succeeded: 4,
					Duration: client.HistoryTimes{P99Ms: 1500}}}}}})
	})
	r := runCLI(t, env, "stats", "--history", "--by-type", "--step", "5m")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, "true", asked.Get("by_type"))
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 2, r.stdout)
	require.Equal(t, []string{"mail", "9", "█", "▂", "8", "█", "█", "1", "█", "5", "1.5s"},
		strings.Fields(lines[1]))
}
