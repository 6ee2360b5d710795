package web_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/worker"
)

// busyShop gives the pictures something to show, and returns the pages: types that are well, one
// with failing payments, one with an endpoint that is down, alerts, and the history of a day.
func (p *page) busyShop(tenant string) []shown {
	p.t.Helper()
	ctx := p.t.Context()
	p.shopWorkers()
	failed := p.shopTasks()
	_, err := p.api.PutSchedule(ctx, "monthly-report", client.ScheduleSpec{Type: "reports",
		Cron: "0 3 1 * *", Context: client.JSON(`{"month":"last"}`)})
	require.NoError(p.t, err)
	_, err = p.api.PutAlerts(ctx, client.NewAlerts{URL: p.echo(http.StatusOK),
		Rules: client.AlertRules{EndpointFailureRate: 0.5, FailedForGood: 5,
			FailedWithin: client.NewDuration(time.Hour)}})
	require.NoError(p.t, err)
	_, err = p.api.PutTaskType(ctx, "mail", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "send"}}})
	require.NoError(p.t, err)
	down, err := p.api.CreateEndpoint(ctx, client.NewEndpoint{Type: "mail", Stage: "send",
		URL: p.echo(http.StatusGone)})
	require.NoError(p.t, err)
	for i := range 3 * asyncflow.FailuresToOpen {
		_, err := p.api.Submit(ctx, client.NewTask{Type: "mail",
			Context: client.JSON(fmt.Sprintf(`{"to":"customer-%d@example.com"}`, i))})
		require.NoError(p.t, err)
	}
	p.pastDay(tenant)
	_, err = p.api.RedriveAll(ctx, client.BulkRedrive{Type: "payments", Code: "bank_timeout"})
	require.NoError(p.t, err)
	p.open("/console")
	p.See("Deliveries stand still")
	p.See("an endpoint fails")
	p.questions(failed)
	p.otherTenants(tenant)
	pages := []shown{
		{"overview", "/console", "an endpoint fails"},
		{"tasks", "/console/tasks?type=payments", failed},
		{"task", "/console/tasks/" + failed, "no funds"},
		{"failures", "/console/failures", "no funds"},
		{"types", "/console/types", "thumbnails"},
		{"type", "/console/types/payments", "charge"},
		{"endpoints", "/console/endpoints", "resize"},
		{"endpoint", "/console/endpoints/" + down.ID, down.URL},
		{"workers", "/console/workers", "resize"},
		{"schedules", "/console/schedules", "monthly-report"},
		{"schedule", "/console/schedules/monthly-report", "monthly-report"},
		{"operations", "/console/operations", "payments"},
		{"alerts", "/console/alerts", "an endpoint fails"},
		{"audit", "/console/audit", "payments"},
	}
	p.resize(390, 844)
	for _, one := range pages[:4] {
		p.open(one.path)
		p.See(one.text)
		p.picture(one.name + "-phone")
	}
	p.resize(1280, 900)
	return pages
}

// otherTenants makes tenants for an operator to see beside a tenant that is in trouble.
func (p *page) otherTenants(first string) {
	p.t.Helper()
	ctx := p.t.Context()
	p.record(first)
	for slug, failed := range map[string]int{"atelier": 0, "cinema": 14, "library": 3} {
		_, err := p.operator().CreateTenant(ctx, slug, client.Quotas{PendingTasks: 100_000})
		require.NoError(p.t, err)
		token, err := p.node.TokenOf(slug, time.Hour, all...)
		require.NoError(p.t, err)
		api, err := client.New(p.node.URL, token)
		require.NoError(p.t, err)
		_, err = api.PutTaskType(ctx, "tickets",
			client.TaskTypeSpec{Stages: []client.Stage{{Name: "print"}}})
		require.NoError(p.t, err)
		for range failed { // they wait for an endpoint
			_, err = api.Submit(ctx, client.NewTask{Type: "tickets", Context: client.JSON(`{}`)})
			require.NoError(p.t, err)
		}
		_, err = p.database().Exec(ctx, `INSERT INTO tenant_`+slug+`.tallies (type, at, failed)
			SELECT 'tickets', now() - interval '9 min', $1::bigint WHERE $1::bigint > 0`, failed)
		require.NoError(p.t, err)
		p.record(slug)
	}
	_, err := p.operator().SuspendTenant(ctx, "atelier", "an unpaid invoice")
	require.NoError(p.t, err)
}

// echo returns the URL of a server that echoes challenges, and else answers with a status.
func (p *page) echo(status int) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Challenge string }
		w.Header().Set("Content-Type", "application/json")
		if json.NewDecoder(r.Body).Decode(&body) == nil && body.Challenge != "" {
			_ = json.NewEncoder(w).Encode(map[string]string{"challenge": body.Challenge})
			return
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte("{}"))
	}))
	p.t.Cleanup(server.Close)
	return server.URL
}

// shopWorkers makes types and their workers, of which one is slow.
func (p *page) shopWorkers() {
	p.t.Helper()
	once := client.RetryPolicy{MaxAttempts: 1}
	types := map[string][]client.Stage{
		"thumbnails": {{Name: "inspect"}, {Name: "resize"}, {Name: "publish"}},
		"payments":   {{Name: "reserve", Retry: once}, {Name: "charge", Retry: once}},
		"reports":    {{Name: "collect"}, {Name: "render"}},
	}
	for name, stages := range types {
		_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{Stages: stages})
		require.NoError(p.t, err)
	}
	p.shopWorker("shop-7f9c", types, 0)
	p.shopWorker("shop-a0b1", types, 0)
	p.shopWorker("shop-x2d4", types, 60*time.Millisecond)
}

// shopWorker makes a worker that takes a time for each task. Tasks fail by what their context says.
func (p *page) shopWorker(name string, types map[string][]client.Stage, takes time.Duration) {
	p.t.Helper()
	w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler), Name: name,
		Keys: []string{"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	require.NoError(p.t, err)
	for name, stages := range types {
		for _, stage := range stages {
			worker.Handle(w, name, stage.Name, func(
				_ context.Context, t worker.Task[map[string]any],
			) (map[string]any, error) {
				<-time.After(takes)
				if text, _ := t.Context["error"].(string); text != "" &&
					(stage.Name == "charge" || stage.Name == "resize") {
					return nil, errors.New(text)
				}
				return t.Context, nil
			})
		}
	}
	server := httptest.NewServer(w)
	p.t.Cleanup(server.Close)
	require.NoError(p.t, w.Register(p.t.Context(),
		worker.Registration{Client: p.api, URL: server.URL}))
}

// shopTasks submits tasks, and waits until all but some are over. It returns a failed one.
func (p *page) shopTasks() (failed string) {
	p.t.Helper()
	ctx := p.t.Context()
	submit := func(n int, task client.NewTask, doc string) {
		for range n {
			task.Context = client.JSON(doc)
			if strings.Contains(doc, "%d") {
				task.Context = client.JSON(fmt.Sprintf(doc, 4700+rand.IntN(200)))
			}
			made, err := p.api.Submit(ctx, task)
			require.NoError(p.t, err)
			if task.Delay == (client.Duration{}) && task.Retry.MaxAttempts == 0 {
				ended, err := p.api.Wait(ctx, made.ID, patience)
				require.NoError(p.t, err)
				if strings.HasPrefix(ended.Error, "card_declined") {
					failed = made.ID
				}
			}
		}
	}
	submit(40, client.NewTask{Type: "thumbnails", User: "ada"}, `{"image":"harbour-%d.jpg"}`)
	submit(30, client.NewTask{Type: "payments", User: "ben"}, `{"order":%d,"amount":12.50}`)
	submit(6, client.NewTask{Type: "payments", User: "cleo"},
		`{"order":%d,"error":"card_declined: no funds on the account of order 4711"}`)
	submit(3, client.NewTask{Type: "payments", User: "dan"},
		`{"order":%d,"error":"bank_timeout: no answer from the bank in 10 s"}`)
	submit(2, client.NewTask{Type: "payments", User: "eve"},
		`{"order":%d,"error":"TypeError: amount is undefined\n  at charge (payments.js:42)"}`)
	submit(4, client.NewTask{Type: "payments", User: "ben"}, `{"order":%d,"amount":80}`)
	submit(2, client.NewTask{Type: "thumbnails", User: "ada", Retry: client.RetryPolicy{
		MaxAttempts: 5, Interval: asyncflow.Seconds(600, 600)}},
		`{"image":"cliff-%d.jpg","error":"no_space: the disk of cdn-7 is full"}`)
	submit(3, client.NewTask{Type: "reports", Delay: client.NewDuration(5 * time.Hour)},
		`{"month":"2026-11"}`)
	return failed
}

// pastDay writes what the types did in the last 24 hours, hour by hour: each is recorded as the
// last one, and then moved to its place.
func (p *page) pastDay(tenant string) {
	p.t.Helper()
	ctx := p.t.Context()
	db := p.database()
	exec := func(sql string, args ...any) {
		_, err := db.Exec(ctx, sql, args...)
		require.NoError(p.t, err)
	}
	exec(`SET search_path = tenant_` + tenant)
	s, err := store.Open(ctx, store.Config{URL: p.node.Database, Node: "recorder", Roles: "api"})
	require.NoError(p.t, err)
	defer s.Close()
	now := s.Clock.Now()
	hour := now.Add(-time.Hour).Truncate(time.Hour)
	for back := 24; back >= 0; back-- {
		until := hour.Add(time.Hour)
		if back == 0 {
			until = now.Truncate(time.Minute)
		}
		for at := hour; at.Before(until); at = at.Add(time.Minute) {
			p.pastMinute(db, at, now.Sub(at)+time.Duration(back)*time.Hour)
		}
		_, err = s.RecordHistory(ctx, tenant, time.Time{})
		require.NoError(p.t, err)
		if back > 0 {
			exec(`UPDATE type_history SET at = at - make_interval(hours => $2)
				WHERE at = $1 AND NOT hourly`, hour, back)
			exec(`DELETE FROM tallies WHERE at = date_trunc('minute', at)`)
			exec(`DELETE FROM type_minutes`)
			exec(`DELETE FROM endpoint_minutes`)
		}
		exec(`DELETE FROM type_history WHERE hourly`)
	}
	exec(`DELETE FROM asyncflow.history_spans`)
	exec(`INSERT INTO asyncflow.history_spans VALUES
		(now() - interval '26 h', now() - interval '9 h 40 min'),
		(now() - interval '9 h', now())`)
}

// pastMinute writes the counters of a minute, some time ago, as if it were at another time.
func (p *page) pastMinute(db *pgx.Conn, at time.Time, ago time.Duration) {
	p.t.Helper()
	hours := time.Now().Add(-ago).Sub(time.Now().Truncate(24 * time.Hour)).Hours()
	load := 0.55 - 0.45*math.Cos(2*math.Pi*(hours-3)/24)
	for name, most := range map[string]float64{"thumbnails": 240, "payments": 90, "mail": 60} {
		n := int(most * load * (0.85 + 0.3*rand.Float64()))
		share, took, failed := 0.01, 40*time.Millisecond, 0
		switch {
		case name == "payments" && (ago > 5*time.Hour && ago < 350*time.Minute ||
			ago < 25*time.Minute):
			share, took = 0.35, 900*time.Millisecond
		case name == "mail" && ago < 20*time.Minute:
			share = 1
		}
		bad := int(float64(n) * share)
		if name == "payments" {
			failed = bad
		}
		var times, waits asyncflow.Latencies
		for range n {
			times.Add(time.Duration(float64(took) * math.Exp(0.7*rand.NormFloat64())))
			waits.Add(time.Duration(4e6 * math.Exp(rand.NormFloat64())))
		}
		b := &pgx.Batch{}
		b.Queue(`INSERT INTO tallies (type, at, submitted, attempts, failures, succeeded, failed)
			VALUES ($1, $2, $3, $3, $4, $5, $6)`, name, at, n, bad, n-bad, failed)
		b.Queue(`INSERT INTO type_minutes
			  (type, stage, at, latencies, late_votes, closed_windows, attempts, busy)
			SELECT name, s->>'name', $2, $3, 0, 0, $4, $5
			FROM task_types, json_array_elements(spec->'stages') s WHERE name = $1
			ON CONFLICT DO NOTHING`, name, at, waits[:], n, float64(n)*took.Seconds())
		b.Queue(`INSERT INTO endpoint_minutes (endpoint, at, attempts, failures, latencies)
			SELECT id, $2, $3, $4, $5 FROM endpoints WHERE type = $1
			ON CONFLICT DO NOTHING`, name, at, n, bad, times[:])
		err := db.SendBatch(p.t.Context(), b).Close()
		require.NoError(p.t, err, name)
	}
}
