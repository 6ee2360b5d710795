package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// No lease is used before a standby has its commit, in each of these ways in which one
// begins. Each part has a type of its own, with a last stage that is named like the part. No other
// part leases in that stage.
//
//  1. Commits begin to wait for a standby, which doesn't exist.
//  2. Something begins a lease. Its wait is cancelled: the lease is committed, with a warning.
//  3. The node waits for another commit before it leases more, and has delivered nothing.
//  4. Commits wait no longer, and the node goes on.
func TestNoLeaseIsUsedWithoutTheStandby(t *testing.T) {
	t.Parallel()
	a := startAlone(t)
	none := func() {}
	for _, part := range []struct {
		name    string
		prepare func()
		begin   func()
	}{
		{"plain", none, func() { a.insert("plain") }},
		{"limited", none, func() { a.insert("limited") }},
		{"signalled", a.insertForSignal, a.signal},
		{"claimed", func() { a.insertForClaims("claimed") }, func() { a.claim("claimed") }},
		{"voted", func() { a.insertForClaims("voted") }, func() { a.claim("voted") }},
		{"begun", func() { a.pass("begun") }, func() {
			assert.NoError(t, a.submit("begun")[0].Err)
		}},
		{"following", func() {
			a.submit("following")
			<-a.reached
		}, func() { close(a.goOn) }},
	} {
		t.Run(part.name, func(t *testing.T) {
			part.prepare()
			a.testCutLease(t, part.name, part.begin)
		})
	}
}

// alone is a node on a server with commits that can be made to wait for a standby, which doesn't
// exist.
type alone struct {
	*node
	t         *testing.T
	admin     *pgxpool.Pool // doesn't wait
	reached   chan struct{} // the first stage of the type following was sent
	goOn      chan struct{} // closed: it is done
	mu        sync.Mutex
	delivered map[string]int // and claimed, by stage
}

func startAlone(t *testing.T) *alone {
	t.Helper()
	server := pgtest.PreparedServer(t, prepare)
	a := &alone{t: t, reached: make(chan struct{}, 1), goOn: make(chan struct{}),
		delivered: map[string]int{}}
	var err error
	a.admin, err = pgxpool.New(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(a.admin.Close)
	b := &bundle{t, server.URL("postgres")}
	a.node = b.start("n", dispatcher.Config{}, a.deliver)
	t.Cleanup(func() { a.setStandby(t, "") }) // otherwise the node can't stop
	a.putTypes(t)
	return a
}

func (a *alone) putTypes(t *testing.T) {
	t.Helper()
	claimed := asyncflow.Stage{Name: "claimed", Mode: asyncflow.ModeClaim}
	voted := asyncflow.Stage{Name: "voted", Mode: asyncflow.ModeClaim,
		Quorum: &asyncflow.Quorum{Votes: 2, MaxVotes: 2}}
	for i, kind := range []asyncflow.TaskType{
		{Name: "plain", Stages: []asyncflow.Stage{{Name: "plain"}}},
		{Name: "limited", Stages: []asyncflow.Stage{{Name: "limited"}},
			Limits: asyncflow.Limits{MaxInFlight: 5}},
		{Name: "signalled", Stages: []asyncflow.Stage{waiting("decision"), {Name: "signalled"}}},
		{Name: "claimed", Stages: []asyncflow.Stage{claimed}},
		{Name: "voted", Stages: []asyncflow.Stage{voted}},
		{Name: "begun", Stages: []asyncflow.Stage{{Name: "begun"}}},
		{Name: "following", Stages: []asyncflow.Stage{{Name: "before"}, {Name: "following"}}},
	} {
		_, _, err := a.PutTaskType(t.Context(), tenant, kind.WithDefaults())
		require.NoError(t, err)
		for j, stage := range kind.Stages {
			if stage.Mode != "" { // it has no endpoint
				continue
			}
			_, err = a.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{
				ID:   fmt.Sprintf("0190a6f0-0000-7000-8000-0000000001%d%d", i, j),
				Type: kind.Name, Stage: stage.Name, URL: "http://worker/", Weight: 1})
			require.NoError(t, err)
		}
	}
	require.NoError(t, a.Catalog.RefreshTenant(t.Context(), tenant))
	a.await(t, a.submit("pipe"), asyncflow.StatusSucceeded)
}

// deliver takes the deliveries. The first stage of the type following ends when the test says so.
func (a *alone) deliver(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
	a.note(d.Lease.Stage)
	if d.Lease.Stage == "before" {
		a.reached <- struct{}{}
		<-a.goOn
	}
	return done
}

func (a *alone) note(stage string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.delivered[stage]++
}

func (a *alone) deliveries(stage string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.delivered[stage]
}

func (a *alone) testCutLease(t *testing.T, stage string, begin func()) {
	before := a.deliveries(stage)
	a.setStandby(t, "nobody")
	var calling sync.WaitGroup
	calling.Go(begin)
	a.eventuallyCut(t, stage)
	a.insert("pipe") // the node wants to lease it
	eventually(t, "a doubt, or a delivery", func() bool {
		return a.deliveries(stage) > before || a.ask(`SELECT count(*) > 0 FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND query LIKE '%pg_logical_emit_message%'`)
	})
	assert.Equal(t, before, a.deliveries(stage), "deliveries without the standby")
	assert.True(t, a.Doubtful())
	a.setStandby(t, "")
	calling.Wait()
	eventually(t, "leases go on", func() bool { return !a.Doubtful() })
}

// eventuallyCut cancels the node's waits for the standby until there is a lease in a stage. Only
// the primary has it then.
func (a *alone) eventuallyCut(t *testing.T, stage string) {
	t.Helper()
	eventually(t, "a lease", func() bool {
		a.ask(`SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND application_name = 'asyncflow'
			  AND query NOT LIKE '%pg_logical_emit_message%'`)
		return a.ask(`SELECT count(*) > 0 FROM tenant_acme.lease WHERE stage = $1`, stage)
	})
}

// setStandby makes commits wait for a standby of this name, and returns once they do; "": for none.
func (a *alone) setStandby(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, sql := range []string{
		`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`, `SELECT pg_reload_conf()`} {
		_, err := a.admin.Exec(ctx, sql)
		require.NoError(t, err)
	}
	if name == "" {
		return // all waits end
	}
	conn, err := pgx.Connect(ctx, a.admin.Config().ConnString())
	require.NoError(t, err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `SET synchronous_commit = on`)
	require.NoError(t, err)
	var waited atomic.Bool
	var committing sync.WaitGroup
	committing.Go(func() {
		for !waited.Load() {
			_, err := conn.Exec(ctx, `SELECT pg_logical_emit_message(true, 'test', '')`)
			assert.NoError(t, err)
		}
	})
	eventually(t, "a wait", func() bool {
		return a.ask(`SELECT count(*) > 0 FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND pid = $1`, conn.PgConn().PID())
	})
	waited.Store(true)
	a.ask(`SELECT pg_cancel_backend($1)`, conn.PgConn().PID())
	committing.Wait()
}

// ask returns the answer to a question; false if there is none.
func (a *alone) ask(sql string, args ...any) (yes bool) {
	_ = a.admin.QueryRow(context.WithoutCancel(a.t.Context()), sql, args...).Scan(&yes)
	return yes
}

// pass submits a task, and waits for its end: now the node knows that nothing is in line, and has
// numbers for more tasks.
func (a *alone) pass(name string) {
	a.t.Helper()
	a.await(a.t, a.submit(name), asyncflow.StatusSucceeded)
	a.keepNumbers()
}

// keepNumbers has the numbers that were taken for new tasks last: to take some is a commit.
func (a *alone) keepNumbers() {
	path := reflect.ValueOf(a.Store).Elem().FieldByName("hotRoom").Elem()
	blocks := path.FieldByName("numbers").Elem().FieldByName("blocks")
	for _, key := range blocks.MapKeys() {
		taken := blocks.MapIndex(key).Elem().FieldByName("taken")
		*(*time.Time)(taken.Addr().UnsafePointer()) = time.Now().Add(time.Hour)
	}
}

// insert submits a task by SQL, in a transaction that doesn't wait.
func (a *alone) insert(name string) {
	_, err := a.admin.Exec(a.t.Context(), `SELECT tenant_acme.submit_task($1, '1')`, name)
	assert.NoError(a.t, err)
}

// insertForClaims is insert for a stage with the name of its type, and waits until claimers can get
// the task, or its votes.
func (a *alone) insertForClaims(name string) {
	a.t.Helper()
	a.insert(name)
	eventually(a.t, "a task in line", func() bool {
		return a.ask(`SELECT count(*) > 0 FROM tenant_acme.wait
			WHERE reason = 'claimer' AND stage = $1`, name)
	})
}

// insertForSignal submits a task, and waits until it waits for a signal. Another one has gone all
// the way before: now the node knows that nothing is in line.
func (a *alone) insertForSignal() {
	a.t.Helper()
	for i := range 2 {
		a.submit("signalled")
		eventually(a.t, "a wait", func() bool {
			return a.ask(`SELECT count(*) > 0 FROM tenant_acme.wait WHERE reason = 'signal'`)
		})
		if i == 0 {
			a.signal()
			eventually(a.t, "the end of the first", func() bool {
				return a.ask(`SELECT count(*) > 0 FROM tenant_acme.journal_1
					WHERE stage = 'signalled' AND final IS NOT NULL`)
			})
		}
	}
}

// signal sends the task its signal, in a transaction that doesn't wait. FollowUp moves it on.
func (a *alone) signal() {
	_, err := a.admin.Exec(a.t.Context(), `SELECT tenant_acme.send_signal('approved',
		task => 'signalled.1.' || (id & ((1::bigint << 40) - 1)))
		FROM tenant_acme.wait WHERE reason = 'signal'`)
	assert.NoError(a.t, err)
}

func (a *alone) submit(name string) []store.Submitted {
	return a.Submit(a.t.Context(), tenant,
		[]asyncflow.NewTask{{Type: name, Context: json.RawMessage(`1`)}})
}

// claim asks for a task; its stage and its type have the same name.
func (a *alone) claim(name string) {
	all, err := a.Claim(a.t.Context(), tenant, dispatcher.ClaimRequest{Type: name, Stage: name,
		Claimer: "anna", Max: 1, Wait: time.Minute})
	for range all {
		a.note(name)
	}
	assert.Equal(a.t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
}
