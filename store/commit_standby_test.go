package store_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// replica is a primary with a synchronous standby, and a node on it.
type replica struct {
	*bundle
	primary, standby *devpg.Server
	admin            *pgxpool.Pool // to the primary; doesn't wait for the standby
}

func setupReplica(t *testing.T) *replica {
	t.Helper()
	t.Parallel()
	primary := pgtest.PreparedServer(t, prepare)
	r := &replica{primary: primary, standby: pgtest.Standby(t, primary)}
	var err error
	r.admin, err = pgxpool.New(t.Context(), primary.URL("postgres"))
	require.NoError(t, err)
	t.Cleanup(r.admin.Close)
	for _, sql := range []string{`ALTER SYSTEM
		SET synchronous_standby_names = '` + pgtest.StandbyName + `'`, `SELECT pg_reload_conf()`} {
		_, err := r.admin.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	eventually(t, "the standby is synchronous", func() bool {
		return r.count(`SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'`) == 1
	})
	r.bundle = open(t, primary.URL("postgres"), "node-1")
	r.put(twoStages())
	return r
}

func (r *replica) count(sql string, args ...any) (n int) {
	_ = r.admin.QueryRow(context.Background(), sql, args...).Scan(&n) // 0 if it is not there
	return n
}

// waiting counts the node's connections that wait for the standby in a statement like this.
func (r *replica) waiting(like string) int {
	return r.count(`SELECT count(*) FROM pg_stat_activity
		WHERE wait_event = 'SyncRep' AND application_name = 'asyncflow' AND query LIKE $1`, like)
}

// cut ends the node's waits for the standby by a function of Postgres, until rows exist. They are
// only on the primary then.
func (r *replica) cut(how, rows string, args ...any) {
	r.t.Helper()
	eventually(r.t, rows, func() bool {
		r.count(`SELECT count(` + how + `(pid)) FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND application_name = 'asyncflow'
			  AND query NOT LIKE '%pg_logical_emit_message%'`)
		return r.count(rows, args...) > 0
	})
}

// promoted ends the primary as a crash would, promotes the standby, and returns a node on it.
func (r *replica) promoted() *bundle {
	r.t.Helper()
	require.NoError(r.t, r.primary.Kill())
	conn, err := pgx.Connect(r.t.Context(), r.standby.URL("postgres"))
	require.NoError(r.t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(r.t.Context(), `SELECT pg_promote()`)
	require.NoError(r.t, err)
	return open(r.t, r.standby.URL("postgres"), "node-2")
}

// warm makes a node take numbers in advance, because taking numbers is a write that also waits.
func warm(b *bundle) {
	b.t.Helper()
	b.submit(newTask(`{"a":0}`))
	b.KeepNumbers()
}

// cancelled are the ways to end a wait for a standby without an answer from it.
// After a cancellation COMMIT succeeds, with a warning: go test ./... tries that one only.
var cancelled = []string{"pg_cancel_backend", "pg_terminate_backend"}

// A submit is answered when the task is on the standby, regardless of how the wait for it ends.
func TestSubmitWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	for i, how := range cancelled {
		for k, key := range []string{"", "order-7"} {
			t.Run(strings.TrimSpace(how+" "+key), func(t *testing.T) {
				if i+k > 0 {
					longform.Costly(t)
				}
				testSubmitWaitsForTheStandby(t, how, key)
			})
		}
	}
}

func testSubmitWaitsForTheStandby(t *testing.T, how, key string) {
	r := setupReplica(t)
	task := newTask(`{"a":1}`)
	task.Options.Key = key
	warm(r.bundle)
	require.NoError(t, r.standby.Stop(t.Context()))

	answered := make(chan store.Submitted, 1)
	go func() { answered <- r.Submit(context.Background(), tenant, []asyncflow.NewTask{task})[0] }()
	r.cut(how, `SELECT count(*) FROM tenant_acme.task_1 WHERE context = '{"a":1}'`)
	var got *store.Submitted
	eventually(t, "the answer, or its wait for the standby", func() bool {
		select {
		case s := <-answered:
			got = &s
		default:
		}
		return got != nil || r.waiting("%") > 0
	})
	if got != nil {
		require.Error(t, got.Err, "acknowledged, but not on the standby")
	}

	r.standby = pgtest.Server(t, r.standby.Config())
	if got == nil {
		s := receive(t, answered)
		got = &s
	}
	for key != "" && got.Err != nil { // as a client does
		got = &r.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
	}
	if got.Err != nil {
		require.Equal(t, asyncflow.CodeUncertain, asyncflow.CodeOf(got.Err),
			"later than a submit may take")
		return
	}
	_, err := r.promoted().Task(t.Context(), tenant, got.ID)
	require.NoError(t, err)
}

// A repeated key is answered when its task, which was committed on the primary alone, is on the
// standby.
func TestRepeatedKeyWaitsForTheStandby(t *testing.T) {
	r := setupReplica(t)
	task := newTask(`{"a":1}`)
	task.Options.Key = "order-7"
	warm(r.bundle)
	require.NoError(t, r.standby.Stop(t.Context()))
	// it doesn't wait
	_, err := r.admin.Exec(t.Context(),
		`SELECT tenant_acme.submit_task('pipe', '{"a":1}', key => 'order-7')`)
	require.NoError(t, err)

	repeated := make(chan store.Submitted, 1)
	go func() { repeated <- r.Submit(context.Background(), tenant, []asyncflow.NewTask{task})[0] }()
	eventually(t, "the answer, or its wait for the standby",
		func() bool { return len(repeated) > 0 || r.waiting("commit") > 0 })
	require.Empty(t, repeated, "acknowledged, but not on the standby")
	r.standby = pgtest.Server(t, r.standby.Config())
	got := receive(t, repeated)
	if got.Err != nil {
		require.Equal(t, asyncflow.CodeUncertain, asyncflow.CodeOf(got.Err),
			"later than a submit may take")
		return
	}
	require.True(t, got.Existing)
	_, err = r.promoted().Task(t.Context(), tenant, got.ID)
	require.NoError(t, err)
}

// A settlement, and a report that finds it already written, are answered when it is on the standby.
func TestSettlementWaitsForTheStandby(t *testing.T) {
	t.Parallel()
	for i, how := range cancelled {
		t.Run(how, func(t *testing.T) {
			if i > 0 {
				longform.Costly(t)
			}
			testSettlementWaitsForTheStandby(t, how)
		})
	}
}

func testSettlementWaitsForTheStandby(t *testing.T, how string) {
	r := setupReplica(t)
	second := open(t, r.url, "node-2")
	kind, err := r.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	id := r.submit(newTask(`{"a":1}`))[0].ID
	lease := r.lease(kind, 1)[0]
	require.NoError(t, r.standby.Stop(t.Context()))

	o := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "never"}
	settled := make(chan store.Settled, 1)
	r.Settle(tenant, asyncflow.Settlement{Lease: lease, Outcome: o,
		Verdict: asyncflow.Decide(kind.TaskType, lease, o, r.Clock.Now())},
		func(s store.Settled) { settled <- s })
	r.cut(how, `SELECT count(*) FROM tenant_acme.journal_1 WHERE id = $1`, id.Number)
	eventually(t, "the answer, or its wait for the standby",
		func() bool { return len(settled) > 0 || r.waiting("%") > 0 })
	require.Empty(t, settled, "acknowledged, but not on the standby")

	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // however long: nothing comes
	defer cancel()
	_, err = second.Written(ctx, kind, id, lease.Seq)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	_, err = second.Change(ctx, tenant, id, asyncflow.Patch{})
	require.Error(t, err)

	r.standby = pgtest.Server(t, r.standby.Config())
	require.NoError(t, receive(t, settled).Err)
	task, err := r.promoted().Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
}

// A call that finds its change already made is answered when the change is on the standby.
func TestRepeatedCancelWaitsForTheStandby(t *testing.T) {
	r := setupReplica(t)
	id := r.submit(newTask(`{"a":1}`))[0].ID
	require.NoError(t, r.standby.Stop(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first := make(chan error, 1)
	go func() {
		_, err := r.Cancel(ctx, tenant, id, "enough")
		first <- err
	}()
	r.cut("pg_cancel_backend", `SELECT count(*) FROM tenant_acme.journal_1 WHERE id = $1`,
		id.Number)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(receive(t, first)))

	again := make(chan error, 1)
	go func() {
		_, err := r.Cancel(ctx, tenant, id, "enough")
		again <- err
	}()
	eventually(t, "the answer, or its wait for the standby",
		func() bool { return len(again) > 0 || r.waiting("%pg_logical_emit_message%") > 0 })
	require.Empty(t, again, "acknowledged, but not on the standby")
	r.standby = pgtest.Server(t, r.standby.Config())
	require.NoError(t, receive(t, again))
	task, err := r.promoted().Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusCancelled, task.Status, fmt.Sprint(id))
}

// While the standby is away, tasks lose at most one attempt, though no node learns of their
// leases. If leases began again and again, tasks would fail without a delivery.
func TestNoMoreLeasesWithoutTheStandby(t *testing.T) {
	r := setupReplica(t)
	kind, err := r.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	for i := range 3 {
		r.submit(newTask(fmt.Sprint(i)))
	}
	require.NoError(t, r.standby.Stop(t.Context()))
	leased := func() int { return r.count(`SELECT count(*) FROM tenant_acme.lease`) }

	failed := make(chan error, 1)
	go func() {
		_, _, err := r.Lease(context.Background(), kind, 1)
		failed <- err
	}()
	r.cut("pg_cancel_backend", `SELECT count(*) FROM tenant_acme.lease`)
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(receive(t, failed)))
	_, _, err = r.Lease(t.Context(), kind, 1) // a statement's deadline cuts it
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err), "%v", err)
	eventually(t, "the end of what was cut", func() bool { return r.waiting("%") == 0 })
	require.Equal(t, 1, leased(), "leases that no node knows of")

	r.standby = pgtest.Server(t, r.standby.Config())
	eventually(t, "leases go on", func() bool {
		leases, _, err := r.Lease(t.Context(), kind, 2)
		return err == nil && len(leases) == 2
	})
}

// While the standby is away for longer than a submit may take, deadlines end the waits of its
// commits. The answer says so in time, and a repeat with the same key finds the task once it is on
// the standby.
func TestSubmitInTimeWithoutTheStandby(t *testing.T) {
	r := setupReplica(t)
	warm(r.bundle)
	require.NoError(t, r.standby.Stop(t.Context()))
	task := newTask(`{"a":1}`)
	task.Options.Key = "order-7"
	ctx, cancel := context.WithTimeout(t.Context(), dispatcher.SubmitPatience)
	defer cancel()
	tasks := []asyncflow.NewTask{task, newTask(`{"a":2}`)}
	began := time.Now()
	for _, got := range r.Submit(ctx, tenant, tasks) {
		require.Equal(t, asyncflow.CodeUncertain, asyncflow.CodeOf(got.Err), "%v", got.Err)
	}
	require.Less(t, time.Since(began), dispatcher.SubmitPatience+5*time.Second)

	r.standby = pgtest.Server(t, r.standby.Config())
	var got store.Submitted
	eventually(t, "an answer", func() bool {
		got = r.Submit(t.Context(), tenant, tasks[:1])[0]
		return got.Err == nil
	})
	require.True(t, got.Existing)
	require.Equal(t, 1,
		r.count(`SELECT count(*) FROM tenant_acme.task_1 WHERE context = '{"a":2}'`),
		"tried again, and written once")
	_, err := r.promoted().Task(t.Context(), tenant, got.ID)
	require.NoError(t, err)
}

// Changes of the database's own tables are answered when they are on the standby, too.
func TestOwnTablesWaitForTheStandby(t *testing.T) {
	r := setupReplica(t)
	_, err := r.admin.Exec(t.Context(), `CREATE ROLE left_over`)
	require.NoError(t, err)
	_, err = r.admin.Exec(t.Context(), `INSERT INTO asyncflow.nodes
		(id, roles, version, started_at, seen_at) VALUES ('old', '', '', '2020-01-01', '2020-01-01')`)
	require.NoError(t, err)
	require.NoError(t, r.standby.Stop(t.Context()))
	url := r.primary.URL("postgres")
	waits := url + "&synchronous_commit=on"
	if !strings.Contains(url, "?") {
		waits = url + "?synchronous_commit=on"
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, do := range map[string]func() error{
		"audit": func() error {
			return r.RecordAll(ctx, []*store.AuditedCall{store.NewAuditedCall("",
				asyncflow.AuditEntry{At: r.Clock.Now(), Origin: asyncflow.AuditFromAPI,
					Action: "test", Outcome: asyncflow.AuditDone})})
		},
		"role": func() error {
			_, err := r.DropTenantRole(ctx, "left_over")
			return err
		},
		"nodes": func() error {
			_, err := r.ForgetNodes(ctx)
			return err
		},
		"jobs": func() error { return r.ScheduleJobs(ctx, map[string]string{"new": "@daily"}) },
		"tenant": func() error {
			_, err := store.CreateTenant(ctx, waits, "new")
			return err
		},
	} {
		done := make(chan error, 1)
		go func() { done <- do() }()
		var failed error
		eventually(t, name, func() bool {
			r.count(`SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
				WHERE wait_event = 'SyncRep'`)
			select {
			case failed = <-done:
				return true
			default:
				return false
			}
		})
		require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(failed), "%s: %v", name,
			failed)
		require.NotEqual(t, context.DeadlineExceeded, ctx.Err())
	}
}

// A confirm on a standby, such as a former primary, counts as a refused write: it is 503, and
// the node looks for the server that takes writes.
func TestConfirmOnAStandby(t *testing.T) {
	r := setupReplica(t)
	conn, err := pgx.Connect(t.Context(), r.standby.URL("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), store.ConfirmSQL)
	require.Equal(t, pgerrcode.ReadOnlySQLTransaction, sqlState(err), "%v", err)
	_, err = r.admin.Exec(t.Context(), store.ConfirmSQL)
	require.NoError(t, err)
}
