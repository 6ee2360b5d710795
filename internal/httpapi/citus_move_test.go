package httpapi_test

import (
	"context"
	"net/url"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// The API on a coordinator of Citus that moves a tenant.
func TestCallsOnCitusMoves(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pgtest.OnCitusToo(t, "TestCallsWaitForAMove")
}

// pauseOfAMove is how long a tenant's writes are blocked in a test: as long as they ever should be.
const pauseOfAMove = 2 * time.Second

// While a tenant moves, calls wait for the end of the move: none is answered with 503, but for
// changes that make or drop tables.
func TestCallsWaitForAMove(t *testing.T) {
	if !pgtest.OnCitus() {
		t.Skip("TestCallsOnCitusMoves runs it")
	}
	b := setup(t)
	running, stop := context.WithCancel(t.Context())
	var store1 sync.WaitGroup
	store1.Go(func() { assert.NoError(t, b.store.Run(running)) })
	defer store1.Wait()
	defer stop()
	b.claimed()
	b.pipe()
	calls := b.callsForAMove()

	var to store.Server
	for _, worker := range b.workers() {
		if worker != b.placement() {
			to = worker
		}
	}
	lock, err := pgx.Connect(t.Context(), b.dbURL)
	require.NoError(t, err)
	defer lock.Close(context.WithoutCancel(t.Context()))
	for _, statement := range []string{`BEGIN`, `LOCK TABLE pg_dist_placement IN SHARE MODE`} {
		_, err = lock.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	switching := make(chan struct{})
	moved := make(chan error, 1)
	go func() {
		_, err := store.MoveTenant(t.Context(), b.dbURL, store.Move{Tenant: "acme", To: to,
			MaxPause: patience}, func(p store.MoveProgress) {
			if p.Phase == store.MoveSwitching {
				close(switching)
			}
		})
		moved <- err
	}()
	<-switching
	var under sync.WaitGroup
	begun := make(chan struct{}, len(calls))
	for name, call := range calls {
		under.Go(func() {
			begun <- struct{}{}
			a := call()
			t.Logf("%s: %d", name, a.status)
			assert.Less(t, a.status, 300, "%s: %s", name, a.body)
		})
	}
	for range calls {
		<-begun
	}
	<-time.After(pauseOfAMove)
	require.NoError(t, lock.Close(t.Context()))
	require.NoError(t, <-moved)
	under.Wait()
}

// callsForAMove returns calls of a tenant, by their names. Those that read only need no lock.
func (b *bundle) callsForAMove() map[string]func() answer {
	b.t.Helper()
	require.Equal(b.t, 201, b.call("PUT", "/v1/task-types/waits",
		`{"stages":[{"name":"one","mode":"wait","wait":{"signal":"go","timeout":"1w"}}]}`).status)
	ids := b.submitJudge(20)
	held := b.claim("anna", `,"max":9`)
	require.Len(b.t, held, 9)
	require.Equal(b.t, 200, b.report(held[7], "complete", `{"output":1}`).status)
	require.Equal(b.t, 200, b.report(held[8], "complete", `{"output":1}`).status)
	cancelled, erased := ids[10], ids[15]
	for _, id := range []string{cancelled, erased} {
		require.Equal(b.t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", ``).status)
	}
	made := read[api.Endpoint](b, 201, b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/x"}`))
	report := func(i int, verb, body string) func() answer {
		return func() answer { return b.report(held[i], verb, body) }
	}
	call := func(method, path, body string) func() answer {
		return func() answer { return b.call(method, path, body) }
	}
	return map[string]func() answer{
		"submit":       call("POST", "/v1/tasks", `{"type":"judge","context":1}`),
		"submit keyed": call("POST", "/v1/tasks", `{"type":"judge","context":1,"key":"k"}`),
		"submit batch": call("POST", "/v1/tasks/batch", `{"tasks":[{"type":"judge","context":1},
			{"type":"pipe","context":1}]}`),
		"submit dependent": call("POST", "/v1/tasks",
			`{"type":"judge","context":1,"depends_on":[{"task":"`+ids[11]+`"}]}`),
		"claim":          func() answer { return b.claimCall("bob", ``) },
		"claim again":    func() answer { return b.claimCall("anna", `,"max":2`) },
		"claim and wait": func() answer { return b.claimCall("carol", `,"wait":"60s"`) },
		"complete":       report(0, "complete", `{"output":1}`),
		"complete again": report(7, "complete", `{"output":1}`),
		"fail":           report(1, "fail", `{"error":"no"}`),
		"heartbeat":      report(2, "heartbeat", ``),
		"checkpoint":     report(3, "heartbeat", `{"checkpoint":{"n":1}}`),
		"progress":       report(4, "progress", `{"percent":1}`),
		"release":        report(5, "release", ``),
		"snooze":         report(6, "snooze", `{"retry_after":"59s"}`),
		"cancel":         call("POST", "/v1/tasks/"+ids[12]+"/cancel", ``),
		"patch":          call("PATCH", "/v1/tasks/"+ids[13], `{"priority":1}`),
		"redrive":        call("POST", "/v1/tasks/"+cancelled+"/redrive", ``),
		"rerun":          call("POST", "/v1/tasks/"+held[8].TaskID+"/rerun", ``),
		"erase":          call("DELETE", "/v1/tasks/"+erased, ``),
		"signal": call("POST", "/v1/signals",
			`{"name":"go","type":"waits","key":"other","data":1}`),
		"get":         call("GET", "/v1/tasks/"+ids[0], ``),
		"attempts":    call("GET", "/v1/tasks/"+ids[0]+"/attempts", ``),
		"list":        call("GET", "/v1/tasks?type=judge", ``),
		"count":       call("GET", "/v1/tasks/count?type=judge", ``),
		"cancel many": call("POST", "/v1/tasks/cancel", `{"type":"pipe"}`),
		"cancel dry":  call("POST", "/v1/tasks/cancel", `{"type":"judge","dry_run":true}`),
		"stats":       call("GET", "/v1/stats", ``),
		"failures":    call("GET", "/v1/failures", ``),
		"workers":     call("GET", "/v1/workers", ``),
		"operations":  call("GET", "/v1/operations", ``),
		"pause type":  call("POST", "/v1/task-types/pipe/pause", ``),
		"types":       call("GET", "/v1/task-types", ``),
		"rolls":       call("GET", "/v1/task-types/judge/rolls", ``),
		"schedule":    call("PUT", "/v1/schedules/daily", `{"type":"pipe","context":1,"cron":"1 1 * * *"}`),
		"create endpoint": call("POST", "/v1/endpoints",
			`{"type":"pipe","stage":"second","url":"https://w.example.com/y"}`),
		"update endpoint": call("PATCH", "/v1/endpoints/"+made.ID, `{"weight":2}`),
		"alerts": call("PUT", "/v1/alerts",
			`{"url":"https://ops.example.com/y","rules":{"failure_rate":1}}`),
		"quota": call("GET", "/v1/quota", ``),
	}
}

// placement returns the worker that has the tenant.
func (b *bundle) placement() store.Server {
	b.t.Helper()
	places, err := b.store.Placements(b.t.Context(), "acme")
	require.NoError(b.t, err)
	require.Contains(b.t, places, "acme")
	return places["acme"]
}

func (b *bundle) workers() (all []store.Server) {
	b.t.Helper()
	urls, err := pgtest.WorkersOf(b.t.Context(), b.dbURL)
	require.NoError(b.t, err)
	for _, worker := range urls {
		u, err := url.Parse(worker)
		require.NoError(b.t, err)
		port, err := strconv.ParseUint(u.Port(), 10, 16)
		require.NoError(b.t, err)
		all = append(all, store.Server{Host: u.Hostname(), Port: uint16(port)})
	}
	return all
}
