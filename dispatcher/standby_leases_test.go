package dispatcher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// No lease is used before its commit is on a standby, in each of these ways in which one begins.
// FollowUp begins "signalled", "child", "joined" and "started" at once; a dependent stands in line
// first. Each part uses a type of its own, with a last stage that is named like the part. No other
// part leases in that stage.
//
//  1. Commits begin to wait for a standby, which doesn't exist.
//  2. Something begins a lease. Its wait is cancelled: the lease is committed, with a warning.
//  3. The node waits for another commit before it leases more, and delivered nothing.
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
		{"child", func() { a.holdFollowUp("spawn", a.parent("fanning")) }, a.followUp},
		{"joined", func() { a.holdFollowUp("children", a.parent("joining")) }, a.followUp},
		{"started", func() {
			a.pass("started")
			a.holdFollowUp("start", a.parent("starting"))
		}, a.followUp},
		{"dependent", func() { a.holdFollowUp("ended", a.endDependency) }, func() {
			a.followUp() // it puts the task in line
			a.insert("dependent")
		}},
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
	t.Cleanup(func() { pgtest.SetStandby(t, a.admin, "") }) // otherwise the node can't stop
	a.putTypes(t)
	return a
}

func (a *alone) putTypes(t *testing.T) {
	t.Helper()
	claimed := asyncflow.Stage{Name: "claimed", Mode: asyncflow.ModeClaim}
	voted := asyncflow.Stage{Name: "voted", Mode: asyncflow.ModeClaim,
		Quorum: &asyncflow.Quorum{Votes: 2, MaxVotes: 2}}
	shards := &asyncflow.FanOut{Shards: 1}
	for i, kind := range []asyncflow.TaskType{
		{Name: "plain", Stages: []asyncflow.Stage{{Name: "plain"}}},
		{Name: "limited", Stages: []asyncflow.Stage{{Name: "limited"}},
			Limits: asyncflow.Limits{MaxInFlight: 5}},
		{Name: "signalled", Stages: []asyncflow.Stage{waiting("decision"), {Name: "signalled"}}},
		{Name: "claimed", Stages: []asyncflow.Stage{claimed}},
		{Name: "voted", Stages: []asyncflow.Stage{voted}},
		{Name: "begun", Stages: []asyncflow.Stage{{Name: "begun"}}},
		{Name: "following", Stages: []asyncflow.Stage{{Name: "before"}, {Name: "following"}}},
		{Name: "fanning", Stages: []asyncflow.Stage{{Name: "child", FanOut: shards}}},
		{Name: "joining", Stages: []asyncflow.Stage{{Name: "shard", FanOut: shards},
			{Name: "joined"}}},
		{Name: "starting", Stages: []asyncflow.Stage{{Name: "start",
			Spawn: []string{"started"}}}},
		{Name: "started", Stages: []asyncflow.Stage{{Name: "started"}}},
		{Name: "dependent", Stages: []asyncflow.Stage{{Name: "dependent"}}},
	} {
		_, _, err := a.PutTaskType(t.Context(), tenant, kind.WithDefaults())
		require.NoError(t, err)
		for j, stage := range kind.Stages {
			if stage.Mode != "" { // it is without an endpoint
				continue
			}
			_, err = a.CreateEndpoint(t.Context(), tenant, asyncflow.Endpoint{
				ID:   fmt.Sprintf("0190a6f0-0000-7000-8000-00000001%02d%02d", i, j),
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
	switch d.Lease.Stage {
	case "before":
		a.reached <- struct{}{}
		<-a.goOn
	case "start":
		o := done
		o.Spawn = []asyncflow.SpawnedTask{{Type: "started", Context: []byte(`1`)}}
		return o
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
	pgtest.SetStandby(t, a.admin, "nobody")
	var calling sync.WaitGroup
	calling.Go(begin)
	a.eventuallyCut(t, stage)
	next := a.insert("pipe") // the node wants to lease it
	eventually(t, "a doubt, or a delivery", func() bool {
		return a.deliveries(stage) > before || a.ask(`SELECT count(*) > 0 FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND query LIKE '%pg_logical_emit_message%'`)
	})
	assert.Equal(t, before, a.deliveries(stage), "deliveries without the standby")
	assert.True(t, a.HasUnknownLeases(tenant))
	pgtest.SetStandby(t, a.admin, "")
	calling.Wait()
	eventually(t, "leases go on", func() bool { return !a.HasUnknownLeases(tenant) })
	a.settleAll(t, next)
}

// settleAll waits until the node commits nothing more. If a commit with a lease were cut in the
// next part before that part's own, the node would doubt that one, and lease nothing.
func (a *alone) settleAll(t *testing.T, last asyncflow.TaskID) {
	t.Helper()
	task, err := a.AwaitFinal(t.Context(), tenant, last, patience)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusSucceeded, task.Status)
	eventually(t, "nothing under way", func() bool {
		return a.InFlight() == 0 &&
			a.ask(`SELECT NOT EXISTS (SELECT FROM tenant_acme.outbox WHERE due <= now())
				AND NOT EXISTS (SELECT FROM pg_stat_activity
				  WHERE application_name = 'asyncflow' AND backend_xid IS NOT NULL)`)
	})
}

// eventuallyCut cancels the node's waits for the standby until there is a lease in a stage. It is
// only on the primary then.
func (a *alone) eventuallyCut(t *testing.T, stage string) {
	t.Helper()
	eventually(t, "a lease", func() bool {
		a.ask(`SELECT count(pg_cancel_backend(pid)) > 0 FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND application_name = 'asyncflow'
			  AND query NOT LIKE '%pg_logical_emit_message%'`)
		return a.ask(`SELECT count(*) > 0 FROM tenant_acme.lease WHERE stage = $1`, stage)
	})
}

// ask returns the answer to a question; false if there is none.
func (a *alone) ask(sql string, args ...any) (yes bool) {
	_ = a.admin.QueryRow(context.WithoutCancel(a.t.Context()), sql, args...).Scan(&yes)
	return yes
}

// pass submits a task, and waits for its end: now the node knows that nothing is in line, and keeps
// numbers for more tasks.
func (a *alone) pass(name string) {
	a.t.Helper()
	a.await(a.t, a.submit(name), asyncflow.StatusSucceeded)
	a.keepNumbers()
}

// keepNumbers keeps the numbers that were taken for new tasks last: to take some is a commit.
func (a *alone) keepNumbers() {
	path := reflect.ValueOf(a.Store).Elem().FieldByName("hotRoom").Elem()
	blocks := path.FieldByName("numbers").Elem().FieldByName("blocks")
	for _, key := range blocks.MapKeys() {
		taken := blocks.MapIndex(key).Elem().FieldByName("taken")
		*(*time.Time)(taken.Addr().UnsafePointer()) = time.Now().Add(time.Hour)
	}
}

// insert submits a task by SQL, in a transaction that doesn't wait.
func (a *alone) insert(name string) (id asyncflow.TaskID) {
	var text string
	err := a.admin.QueryRow(a.t.Context(), `SELECT tenant_acme.submit_task($1, '1')`, name).
		Scan(&text)
	assert.NoError(a.t, err)
	id, err = asyncflow.ParseTaskID(text)
	assert.NoError(a.t, err)
	return id
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

// insertForSignal submits a task, and waits until it waits for a signal. Another one went all the
// way before: now the node knows that nothing is in line.
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

// signal sends the task its signal, in a transaction that doesn't wait. FollowUp moves it on, and
// keeps the context of the next stage at hand: only such a task begins at once.
func (a *alone) signal() {
	_, err := a.admin.Exec(a.t.Context(), `SELECT tenant_acme.send_signal('approved', '1',
		task => 'signalled.1.' || (id & ((1::bigint << 40) - 1)))
		FROM tenant_acme.wait WHERE reason = 'signal'`)
	assert.NoError(a.t, err)
}

// holdFollowUp keeps rows of a kind in outbox that a function causes, and waits until no other row
// is due. They are not due before followUp, since the node may follow up at any time.
func (a *alone) holdFollowUp(kind string, cause func()) {
	a.t.Helper()
	a.exec(`CREATE FUNCTION tenant_acme.hold() RETURNS trigger LANGUAGE plpgsql
		AS $$ BEGIN NEW.due = 'infinity'; RETURN NEW; END $$`)
	a.exec(`CREATE TRIGGER hold BEFORE INSERT ON tenant_acme.outbox
		FOR EACH ROW WHEN (NEW.kind = '` + kind + `') EXECUTE FUNCTION tenant_acme.hold()`)
	cause()
	eventually(a.t, kind, func() bool {
		return a.ask(`SELECT bool_or(kind = $1) AND bool_and(due > now()) FROM tenant_acme.outbox`,
			kind)
	})
	a.exec(`DROP FUNCTION tenant_acme.hold CASCADE`)
}

// followUp does what holdFollowUp kept. A call with a cut commit fails: what is left of its work is
// done by the next one.
func (a *alone) followUp() {
	_, err := a.admin.Exec(a.t.Context(),
		`UPDATE tenant_acme.outbox SET due = '-infinity' WHERE due = 'infinity'`)
	assert.NoError(a.t, err)
	for more := true; more; {
		more, err = a.FollowUp(a.t.Context(), tenant)
		if err != nil {
			assert.Equal(a.t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
			more = !a.t.Failed()
		}
	}
}

// parent returns a function that submits a task with children, or started tasks.
func (a *alone) parent(name string) func() {
	return func() { assert.NoError(a.t, a.submit(name)[0].Err) }
}

// endDependency ends a task that another one depends on, and found waiting.
func (a *alone) endDependency() {
	a.t.Helper()
	first := asyncflow.NewTask{Type: "plain", Context: json.RawMessage(`1`)}
	first.Delay = asyncflow.NewDuration(time.Hour)
	on := a.Submit(a.t.Context(), tenant, []asyncflow.NewTask{first})[0]
	require.NoError(a.t, on.Err)
	got := a.Submit(a.t.Context(), tenant, []asyncflow.NewTask{{Type: "dependent",
		Context: json.RawMessage(`1`), DependsOn: []asyncflow.Dependency{{Task: on.ID,
			OnFailure: asyncflow.DependentRuns}}}})[0]
	require.NoError(a.t, got.Err)
	eventually(a.t, "a look at the dependency", func() bool {
		return a.ask(`SELECT NOT EXISTS (SELECT FROM tenant_acme.outbox WHERE due <= now())`)
	})
	a.exec(`UPDATE tenant_acme.outbox SET due = 'infinity'`) // the next look
	_, err := a.Cancel(a.t.Context(), tenant, on.ID, "")
	require.NoError(a.t, err)
}

func (a *alone) exec(sql string) {
	a.t.Helper()
	_, err := a.admin.Exec(a.t.Context(), sql)
	require.NoError(a.t, err)
}

func (a *alone) submit(name string) []store.Submitted {
	return a.Submit(a.t.Context(), tenant,
		[]asyncflow.NewTask{{Type: name, Context: json.RawMessage(`1`)}})
}

// claim asks for a task; the name of its stage is that of its type.
func (a *alone) claim(name string) {
	all, err := a.Claim(a.t.Context(), tenant, dispatcher.ClaimRequest{Type: name, Stage: name,
		Claimer: "anna", Max: 1, Wait: time.Minute})
	for range all {
		a.note(name)
	}
	assert.Equal(a.t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
}
