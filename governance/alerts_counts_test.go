package governance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// settle ends a lease with an outcome.
func (b *bundle) settle(t *testing.T, pipe *store.Type, l asyncflow.Lease, o asyncflow.Outcome) {
	t.Helper()
	done := make(chan store.Settled, 1)
	b.Settle(tenant, asyncflow.Settlement{Lease: l, Outcome: o,
		Verdict: asyncflow.Decide(pipe.TaskType, l, o, b.Clock.Now())},
		func(s store.Settled) { done <- s })
	require.NoError(t, (<-done).Err)
}

var (
	poisoned = asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "422: poison"}
	failing  = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "503: away"}
	good     = asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
)

// firing returns the detail of the notice that says that an alert about a subject fires.
func (b *bundle) firing(t *testing.T, kind asyncflow.AlertKind, subject string) asyncflow.Episode {
	t.Helper()
	episodes, _, err := b.FiringEpisodes(t.Context(), tenant)
	require.NoError(t, err)
	for _, e := range episodes {
		if e.Alert == kind && e.Subject == subject {
			require.NotEmpty(t, e.FiringTask)
			return e
		}
	}
	require.Fail(t, "it doesn't fire", "%s of %s among %+v", kind, subject, episodes)
	return asyncflow.Episode{}
}

// resolves evaluates the rules twice, a minute apart, and returns how many notices were sent.
func (b *bundle) resolves(t *testing.T, url string) int {
	t.Helper()
	n := b.turn(t, url, tenant)
	exec(t, url, `UPDATE tenant_acme.alert_episodes SET below = below - interval '1 min'`)
	return n + b.turn(t, url, tenant)
}

// A few tasks that fail for good in a type with thousands of good attempts fire, by their number.
// Neither redrives nor folds lower it, and it is over when they are past.
func TestFailedForGoodAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.pipe(t, "other")
	b.putAlerts(t, tenant, asyncflow.AlertRules{FailedForGood: 3, FailedInTotal: 4,
		FailedWithin: asyncflow.NewDuration(30 * time.Minute), FailureRate: 0.01,
		FailureAttempts: 20})
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, attempts, succeeded)
		SELECT 'pipe', now() - interval '4 min', 10000, 10000`)
	leases := b.submitAndLease(t, pipe, 4)
	b.settle(t, pipe, leases[0], poisoned)
	b.settle(t, pipe, leases[1], poisoned)
	b.settle(t, pipe, leases[2], good)
	b.settle(t, pipe, leases[3], failing)
	require.Zero(t, b.turn(t, url, tenant), "two have failed; one is tried again")
	b.endPauses(t, url)
	b.settle(t, pipe, b.admitted(t, pipe), failing)
	require.Equal(t, 1, b.turn(t, url, tenant), "and that was its last attempt")
	e := b.firing(t, asyncflow.AlertFailedForGood, "pipe")
	assert.Equal(t, []float64{3, 3}, []float64{e.Value, e.Limit})
	assert.JSONEq(t, `{"alert":"failed_for_good","state":"firing","tenant":"acme","type":"pipe",
		"since":"`+e.Since.UTC().Format(time.RFC3339Nano)+`","value":3,"limit":3,
		"episode":"`+e.ID+`","within":1800,"task":{"id":"`+leases[3].ID.String()+`"}}`,
		string(e.Notice(tenant, asyncflow.AlertFiring)))

	for _, l := range leases[:2] {
		_, err := b.Redrive(t.Context(), tenant, l.ID, store.Redrive{})
		require.NoError(t, err)
	}
	exec(t, url, `UPDATE tenant_acme.tallies SET at = at - interval '3 min' WHERE failed <> 0`)
	folded, err := b.jobs["fold"].Run(t.Context())
	require.NoError(t, err)
	require.Positive(t, folded)
	require.Zero(t, b.resolves(t, url), "they have failed, whatever became of them")
	failed, err := b.FailedForGood(t.Context(), tenant, b.Clock.Now().Add(-30*time.Minute))
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"pipe": 3}, failed)
	stats, err := b.Stats(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	assert.EqualValues(t, 1, stats[0].Failed, "two were redriven")

	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, failed) VALUES ('other', now(), 1),
		('asyncflow-alerts', now(), 100)`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	e = b.firing(t, asyncflow.AlertFailedForGood, asyncflow.AllTypes)
	assert.Equal(t, 4.0, e.Value, "alerts don't count")
	assert.NotContains(t, string(e.Notice(tenant, asyncflow.AlertFiring)), `"type"`)
	exec(t, url, `UPDATE tenant_acme.tallies SET at = at - interval '31 min'`)
	require.Equal(t, 2, b.resolves(t, url), "that is past")
}

// A period of more than two hours also counts what was folded to an hour.
func TestFailedForGoodOfADay(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, failed)
		SELECT 'pipe', now() - n * interval '10 min', 1 FROM generate_series(1, 300) n`)
	_, err := b.jobs["fold"].Run(t.Context())
	require.NoError(t, err)
	for hours, least := range map[int]int64{1: 6, 2: 12, 5: 29, 24: 143} {
		failed, err := b.FailedForGood(t.Context(), tenant,
			b.Clock.Now().Add(-time.Duration(hours)*time.Hour))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, failed["pipe"], least, "%d h", hours)
		assert.LessOrEqual(t, failed["pipe"], least+7, "%d h", hours)
	}
}

// ordered makes an ordered type.
func (b *bundle) ordered(t *testing.T, name string, then asyncflow.FlowFailure) *store.Type {
	t.Helper()
	return b.put(t, asyncflow.TaskType{Name: name,
		Flow: &asyncflow.Flow{Ordered: true, OnFailure: then}})
}

// inLine submits n tasks of a flow key and leases the first one. The others wait for their turn.
func (b *bundle) inLine(t *testing.T, pipe *store.Type, key string, n int) asyncflow.Lease {
	t.Helper()
	tasks := make([]asyncflow.NewTask, n)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: pipe.Name, Context: json.RawMessage(fmt.Sprint(i)),
			Options: asyncflow.Options{FlowKey: key}}
	}
	for _, r := range b.Submit(t.Context(), tenant, tasks) {
		require.NoError(t, r.Err)
	}
	return b.admitted(t, pipe)
}

// admitting admits everything.
type admitting struct{}

func (admitting) Capacity(string) int                         { return 100 }
func (admitting) Admit(string) (string, asyncflow.WaitReason) { return anyEndpoint, "" }
func (admitting) AdmitKey(string) bool                        { return true }

const anyEndpoint = "0190a6f0-0000-7000-8000-000000000002"

// admitted leases the one task of a type that may begin. All others that are due are filed.
func (b *bundle) admitted(t *testing.T, pipe *store.Type) asyncflow.Lease {
	t.Helper()
	var leases []asyncflow.Lease
	require.Eventually(t, func() bool { // its pause may last for a moment
		g, err := b.LeaseLimited(t.Context(), pipe, 100,
			func(store.InFlight) store.Admission { return admitting{} })
		require.NoError(t, err)
		leases = g.Leases
		return len(leases) > 0
	}, patience, 20*time.Millisecond)
	require.Len(t, leases, 1)
	return leases[0]
}

// endPauses ends the pauses of tasks that wait for another attempt.
func (b *bundle) endPauses(t *testing.T, url string) {
	t.Helper()
	exec(t, url, `UPDATE tenant_acme.wait SET until = now(), order_time = now()
		WHERE reason = 'retry'`)
	exec(t, url, `UPDATE tenant_acme.ready_1 SET order_time = now() - interval '1 s'`)
	_, err := b.jobs["promote"].Run(t.Context())
	require.NoError(t, err)
}

// longWaiting makes tasks wait for their flow keys for an hour longer.
const longWaiting = `UPDATE tenant_acme.wait SET order_time = order_time - interval '1 h'
	WHERE reason = 'flow_key'`

// While the flow keys can't be looked at, other rules go on, and no episode about keys ends.
func TestBlockedKeyHoldsNoOtherAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.ordered(t, "pipe", asyncflow.FlowBlock)
	b.putAlerts(t, tenant, asyncflow.AlertRules{FailedInTotal: 1,
		BlockedKey: asyncflow.NewDuration(30 * time.Minute)})
	b.settle(t, pipe, b.inLine(t, pipe, "customer", 2), poisoned)
	exec(t, url, longWaiting+`; UPDATE tenant_acme.flow_blocks SET since = since - interval '1 h';
		DELETE FROM tenant_acme.tallies`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	b.firing(t, asyncflow.AlertBlockedKey, "pipe")

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `LOCK TABLE tenant_acme.flow_blocks`)
	require.NoError(t, err)
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, failed) VALUES ('pipe', now(), 1)`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	b.firing(t, asyncflow.AlertFailedForGood, asyncflow.AllTypes)
	b.firing(t, asyncflow.AlertBlockedKey, "pipe")

	require.NoError(t, tx.Rollback(t.Context()))
	exec(t, url, `ALTER TABLE tenant_acme.flow_blocks RENAME COLUMN since TO hidden`)
	require.Zero(t, b.resolves(t, url))
	b.firing(t, asyncflow.AlertBlockedKey, "pipe")
}

// A flow key that a failed task blocks fires while others wait for it, and names the key and the
// task. It is over when the key is released.
func TestBlockedKeyAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.ordered(t, "pipe", asyncflow.FlowBlock)
	b.putAlerts(t, tenant,
		asyncflow.AlertRules{BlockedKey: asyncflow.NewDuration(30 * time.Minute)})
	failed := b.inLine(t, pipe, "customer-17", 3)
	b.inLine(t, pipe, "moves", 2)
	alone := b.inLine(t, pipe, "alone", 1)
	b.settle(t, pipe, failed, poisoned)
	b.settle(t, pipe, alone, poisoned)
	require.Zero(t, b.turn(t, url, tenant), "not for long enough")
	const block = `UPDATE tenant_acme.flow_blocks SET since = since `
	exec(t, url, block+`- interval '1 h'`)
	require.Zero(t, b.turn(t, url, tenant), "the tasks behind it are new")
	exec(t, url, block+`- interval '-1 h'`)
	exec(t, url, longWaiting)
	require.Zero(t, b.turn(t, url, tenant), "the tasks behind it waited for others before")
	exec(t, url, block+`- interval '1 h'`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	e := b.firing(t, asyncflow.AlertBlockedKey, "pipe")
	assert.InDelta(t, 3600, e.Value, 120)
	require.Len(t, e.Detail.Keys, 1, "nobody waits behind alone, and moves has a task under way")
	k := e.Detail.Keys[0]
	assert.WithinDuration(t, b.Clock.Now().Add(-time.Hour), k.Since, 2*time.Minute)
	assert.Equal(t, asyncflow.BlockedKey{Key: "customer-17", Task: failed.ID.String(),
		Status: asyncflow.StatusFailed, Since: k.Since}, k)
	assert.Equal(t, 1, e.Detail.BlockedKeys)
	assert.Contains(t, string(e.Notice(tenant, asyncflow.AlertFiring)),
		`"keys":[{"key":"customer-17","task":"`+failed.ID.String()+`","status":"failed","since":"`)
	_, err := b.Pause(t.Context(), tenant, "pipe", "")
	require.NoError(t, err)
	all, err := b.BlockedKeys(t.Context(), tenant, b.Clock.Now())
	require.NoError(t, err)
	require.Empty(t, all, "of a paused type everything stands still")
	_, err = b.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	n, err := b.UnblockKey(t.Context(), tenant, "pipe", "customer-17")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 1, b.resolves(t, url), "the key was released")
}

// A key with a first task that is retried fires by the first of its failures, while that task
// waits and while it runs again. With on_failure: park others overtake it, and no key stands still.
func TestAlertOfAKeyWhoseFirstTaskIsRetried(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	for _, then := range []asyncflow.FlowFailure{asyncflow.FlowSkip, asyncflow.FlowPark} {
		name := string(then)
		_, _, err := b.PutTaskType(t.Context(), tenant, asyncflow.TaskType{Name: name,
			Flow: &asyncflow.Flow{Ordered: true, OnFailure: then},
			Stages: []asyncflow.Stage{{Name: "only", Retry: asyncflow.RetryPolicy{MaxAttempts: 9,
				Interval: asyncflow.Seconds(600, 600)}}}}.WithDefaults())
		require.NoError(t, err)
		known, err := b.Catalog.Type(tenant, name)
		require.NoError(t, err)
		b.settle(t, known, b.inLine(t, known, "k", 3), failing)
		if then == asyncflow.FlowPark {
			b.admitted(t, known) // the second one overtakes it
		}
	}
	b.putAlerts(t, tenant,
		asyncflow.AlertRules{BlockedKey: asyncflow.NewDuration(30 * time.Minute)})
	exec(t, url, longWaiting)
	require.Zero(t, b.turn(t, url, tenant), "it has just failed")
	exec(t, url, `UPDATE tenant_acme.journal_1 SET at = at - interval '40 min'`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	e := b.firing(t, asyncflow.AlertBlockedKey, "skip")
	assert.InDelta(t, 2400, e.Value, 120)
	assert.Equal(t, []any{"k", asyncflow.StatusWaiting, asyncflow.WaitRetry},
		[]any{e.Detail.Keys[0].Key, e.Detail.Keys[0].Status, e.Detail.Keys[0].WaitsFor})

	b.endPauses(t, url)
	known, err := b.Catalog.Type(tenant, "skip")
	require.NoError(t, err)
	running := b.admitted(t, known)
	all, err := b.BlockedKeys(t.Context(), tenant, b.Clock.Now().Add(-30*time.Minute))
	require.NoError(t, err)
	require.Len(t, all, 1, "while it runs again")
	assert.Equal(t, asyncflow.StatusRunning, all["skip"].Longest[0].Status)
	b.settle(t, known, running, good)
	require.Equal(t, 1, b.resolves(t, url))
}

// A tenant with many blocked keys of the greatest length, in many types, gets notices of some
// kilobytes, and doesn't keep others from theirs. In the long form there are 100,000.
func TestAlertOfManyKeys(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	_, err := store.CreateTenant(t.Context(), url, "other", noRoles())
	require.NoError(t, err)
	require.NoError(t, b.Catalog.Refresh(t.Context()))
	const types = 20
	keys := longform.Size(20_000, 100_000)
	numbers := make([]int32, types)
	names := make([]string, types)
	for i := range types {
		names[i] = fmt.Sprintf("flood-%d", i)
		numbers[i] = b.ordered(t, names[i], asyncflow.FlowBlock).Number()
	}
	b.putAlerts(t, tenant, asyncflow.AlertRules{BlockedKey: asyncflow.NewDuration(time.Minute)})
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	// Control characters take six bytes each in JSON.
	for _, sql := range []string{`
		INSERT INTO tenant_acme.flow_blocks (type, key, id, since)
		SELECT ($1::text[])[1 + n % 20], repeat(chr(1), 249) || lpad(n::text, 6, '0'),
		  (1::bigint << 40) + n, now() - interval '2 h' + n * interval '1 ms'
		FROM generate_series(1, 2 * $3) n WHERE cardinality($2::int[]) > 0`, `
		INSERT INTO tenant_acme.wait (type, id, seq, stage, attempt, order_time, reason, key, until)
		SELECT ($2::int[])[1 + n % 20], (1::bigint << 40) + 1000000 + n, 1, 'only', 1,
		  now() - interval '3 h', 'flow_key', repeat(chr(1), 249) || lpad(n::text, 6, '0'), 'infinity'
		FROM generate_series(1, $3) n WHERE cardinality($1::text[]) > 0`, `
		INSERT INTO tenant_acme.wait (type, id, seq, stage, attempt, order_time, reason, key, until)
		SELECT ($2::int[])[1 + n % 2], (1::bigint << 40) + 2000000 + n * 10 + i, 1, 'only', 1,
		  now() - interval '2 h', (ARRAY['flow_key', 'endpoint'])[1 + i], 'head' || n, 'infinity'
		FROM generate_series(1, 4000) n, generate_series(0, 1) i
		WHERE cardinality($1::text[]) > 0 AND $3 > 0`} {
		_, err := conn.Exec(t.Context(), sql, names, numbers, keys)
		require.NoError(t, err)
	}
	began := time.Now()
	all, err := b.BlockedKeys(t.Context(), tenant, b.Clock.Now().Add(-time.Minute))
	require.NoError(t, err)
	took := time.Since(began)
	t.Logf("%d keys: %v", keys, took)
	require.Less(t, took, patience/4)
	require.Len(t, all, types)
	sum := 0
	for name, of := range all {
		sum += of.Count
		require.Len(t, of.Longest, asyncflow.MaxAlertKeys, name)
	}
	assert.Equal(t, keys+1000, sum,
		"nobody waits for the other half, and of first tasks that wait, 1,000 are looked at")
	require.Equal(t, types+2, b.turn(t, url, tenant), "and the two stages without an endpoint")
	for i, name := range names {
		e := b.firing(t, asyncflow.AlertBlockedKey, name)
		if i > 1 {
			assert.Equal(t, keys/types, e.Detail.BlockedKeys)
		}
		assert.Less(t, len(e.Notice(tenant, asyncflow.AlertFiring)), 10_000)
	}
}

// The rule on waits goes by the times of tasks that were started within its period. If none was
// started, it goes by the oldest task that is due.
func TestLongWaitAlert(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	for _, name := range []string{"slow", "quick", "stuck", "late"} {
		b.pipe(t, name)
	}
	b.putAlerts(t, tenant, asyncflow.AlertRules{LongWait: asyncflow.NewDuration(30 * time.Second),
		LongWaitWithin: asyncflow.NewDuration(10 * time.Minute)})
	// Bucket 74 counts times of up to 46 s, bucket 40 of up to 0.13 s.
	exec(t, url, `INSERT INTO tenant_acme.type_minutes
		SELECT type, stage, date_trunc('minute', now()) - ago * interval '1 min',
		  array_fill(0, ARRAY[40]) || quick || array_fill(0, ARRAY[33]) || slow, 0, 0
		FROM (VALUES ('slow', 'only', 8, 98, 2), ('quick', 'only', 8, 9900, 1),
		  ('quick', 'only', 12, 0, 1000), ('quick', '', 1, 0, 1000), ('late', 'only', 40, 0, 100))
		  AS v (type, stage, ago, quick, slow)`)
	for _, name := range []string{"quick", "stuck", "late"} {
		for _, r := range b.Submit(t.Context(), tenant,
			[]asyncflow.NewTask{{Type: name, Context: []byte(`1`)}}) {
			require.NoError(t, r.Err)
		}
	}
	require.Equal(t, 1, b.turn(t, url, tenant))
	e := b.firing(t, asyncflow.AlertLongWait, "slow")
	assert.InDelta(t, 42, e.Value, 5)
	assert.Equal(t, 600.0, e.Detail.Within)
	assert.InDelta(t, 0.12, e.Detail.P50, 0.02)
	assert.Contains(t, string(e.Notice(tenant, asyncflow.AlertFiring)), `"p50":0.1`)
	exec(t, url, `UPDATE tenant_acme.ready_1 SET order_time = order_time - interval '1 min'`)
	require.Equal(t, 2, b.turn(t, url, tenant), "two types begin nothing")
	for _, name := range []string{"stuck", "late"} {
		e = b.firing(t, asyncflow.AlertLongWait, name)
		assert.InDelta(t, 60, e.Value, 30)
		assert.Equal(t, asyncflow.WaitEndpoint, e.WaitsFor)
		assert.Zero(t, e.Detail.P50)
	}
	exec(t, url, `DELETE FROM tenant_acme.ready_1`)
	exec(t, url, `UPDATE tenant_acme.type_minutes SET at = at - interval '10 min'`)
	require.Equal(t, 3, b.resolves(t, url))
}

// The rule goes by what nodes count: how long each task was due when its delivery was sent.
func TestLongWaitOfDeliveries(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.putAlerts(t, tenant, asyncflow.AlertRules{LongWait: asyncflow.NewDuration(time.Minute)})
	deliver := func(due time.Duration) {
		t.Helper()
		l := b.submitAndLease(t, pipe, 1)[0]
		l.DueAt = b.Clock.Now().Add(-due)
		b.CountDeliveries(pipe.Key(), []asyncflow.Delivery{{Lease: l, At: b.Clock.Now()}})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- b.Store.Run(ctx) }()
		require.Eventually(t, func() bool { // the node wrote it
			waits, err := b.StartWaits(t.Context(), tenant, b.Clock.Now().Add(-time.Hour))
			require.NoError(t, err)
			return waits["pipe"].P99 > due/2
		}, patience, 20*time.Millisecond)
		cancel()
		require.NoError(t, <-ran)
	}
	deliver(time.Second)
	require.Zero(t, b.turn(t, url, tenant))
	deliver(10 * time.Minute)
	require.Eventually(t, func() bool { return b.turn(t, url, tenant) == 1 }, patience,
		100*time.Millisecond) // Postgres adds up what happened in a table up to a second later
	e := b.firing(t, asyncflow.AlertLongWait, "pipe")
	assert.InEpsilon(t, 600, e.Value, 0.2)
	assert.Equal(t, 60.0, e.Limit)
}

// The counts of starts are written after the end of the tasks. They wake the job.
func TestWaitsWakeAlerts(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.pipe(t, "pipe")
	b.putAlerts(t, tenant, asyncflow.AlertRules{LongWait: asyncflow.NewDuration(time.Second)})
	require.Zero(t, b.turn(t, url, tenant))
	exec(t, url, `INSERT INTO tenant_acme.type_minutes
		SELECT 'pipe', 'only', date_trunc('minute', now()), array_fill(0, ARRAY[74]) || 1, 0, 0`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	b.firing(t, asyncflow.AlertLongWait, "pipe")
}

// A thousand types with all rules take a moment, and so does a long history.
func TestAlertRulesOfAThousandTypes(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.ordered(t, "ordered", asyncflow.FlowBlock)
	exec(t, url, `INSERT INTO tenant_acme.task_types
		  (name, version, spec, created_at, updated_at, table_set, from_pos)
		SELECT 'type-' || n, version, spec, created_at, updated_at, table_set, from_pos
		FROM tenant_acme.task_types, generate_series(1, 1000) n WHERE name = 'ordered'`)
	exec(t, url, `UPDATE asyncflow.tenants SET version = version + 1000
		WHERE slug = 'acme'`)
	require.NoError(t, b.Catalog.Refresh(t.Context()))
	require.Len(t, b.Catalog.TypesOf(tenant), 1001)
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, succeeded, failed)
		SELECT 'type-' || 1 + n % 1000, now() - interval '2 days' - n * interval '1 min', 10, n % 2
		FROM generate_series(1, 300000) n`)
	exec(t, url, `INSERT INTO tenant_acme.flow_blocks (type, key, id)
		SELECT 'type-' || 1 + n % 1000, 'k' || n, n FROM generate_series(1, 100000) n`)
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, failed)
		SELECT 'type-' || n, now(), 3 FROM generate_series(1, 1000) n`)
	exec(t, url, `INSERT INTO tenant_acme.type_minutes
		SELECT 'type-' || n, 'only', date_trunc('minute', now()) - m * interval '1 min',
		  array_fill(1, ARRAY[80]), 0, 0
		FROM generate_series(1, 1000) n, generate_series(0, 14) m`)
	tries := map[string]int64{} // a busy machine may take longer than the database lets a read
	for name, read := range map[string]func() (int, error){
		"failed": func() (int, error) {
			all, err := b.FailedForGood(t.Context(), tenant, b.Clock.Now().Add(-time.Hour))
			return len(all), err
		},
		"keys": func() (int, error) {
			all, err := b.BlockedKeys(t.Context(), tenant, b.Clock.Now())
			return len(all) + 1000, err
		},
		"waits": func() (int, error) {
			all, err := b.StartWaits(t.Context(), tenant, b.Clock.Now().Add(-time.Hour))
			return len(all), err
		},
	} {
		n, err := 0, error(nil)
		require.Eventually(t, func() bool {
			began := time.Now()
			tries[name]++
			n, err = read()
			t.Logf("%s: %v, %v", name, time.Since(began), err)
			return asyncflow.CodeOf(err) != asyncflow.CodeUnavailable
		}, 2*patience, 20*time.Millisecond, name)
		require.NoError(t, err)
		assert.Equal(t, 1000, n, name)
	}
	pgtest.NotOnCitus(t, "Postgres counts what was read where the rows are, on the worker")
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	// Postgres adds up its statistics up to a second after a transaction. Only this test's reads
	// went through the indexes.
	require.Eventually(t, func() bool {
		var failed, blocks, minutes int64
		require.NoError(t, conn.QueryRow(t.Context(), `
			SELECT idx_tup_read, (SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))
			  FROM pg_stat_user_tables WHERE relid = 'tenant_acme.flow_blocks'::regclass),
			  (SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
			  FROM pg_stat_user_tables WHERE relid = 'tenant_acme.type_minutes'::regclass)
			FROM pg_stat_user_indexes WHERE indexrelid = 'tenant_acme.tallies_failed'::regclass`).
			Scan(&failed, &blocks, &minutes))
		require.LessOrEqual(t, failed, 1000*tries["failed"], "no history")
		require.Zero(t, blocks, "nobody waits")
		require.LessOrEqual(t, minutes, 15_000*tries["waits"], "each minute of a type once")
		return failed >= 1000 && minutes >= 15_000
	}, patience, 100*time.Millisecond)
}
