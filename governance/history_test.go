package governance_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// hour reads the points of the last two hours; "": of all types.
func (b *bundle) hours(t *testing.T, taskType string, step time.Duration) store.TypeHistory {
	t.Helper()
	h, err := b.ReadHistory(t.Context(), store.HistoryQuery{Tenant: tenant, Type: taskType,
		From: b.Clock.Now().Add(-2 * time.Hour), Step: step})
	require.NoError(t, err)
	return h
}

// counted adds up a number of some points.
func counted(h store.TypeHistory, of func(store.HistoryPoint) int64) (sum int64) {
	for _, p := range h.Points {
		sum += of(p)
	}
	return sum
}

func submitted(p store.HistoryPoint) int64 { return p.Values[store.HistorySubmitted] }
func succeeded(p store.HistoryPoint) int64 { return p.Values[store.HistorySucceeded] }
func failed(p store.HistoryPoint) int64    { return p.Values[store.HistoryFailed] }

func endedByWorkers(p store.HistoryPoint) int64 { return p.Values[store.HistoryEnded] }

// earlier moves all that was counted back in time.
func earlier(t *testing.T, url, interval string) {
	t.Helper()
	exec(t, url, `UPDATE tenant_acme.tallies SET at = at - interval '`+interval+`';
		UPDATE tenant_acme.type_minutes SET at = at - interval '`+interval+`'`)
}

// What was submitted and finished is recorded once, by whichever node, however often, before and
// after its tallies are folded, and also if it was committed late.
func TestHistoryCountsOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	pipe := a.pipe(t, "pipe")
	a.pipe(t, "idle")
	leases := a.submitAndLease(t, pipe, 5)
	a.settleAll(t, pipe, leases[:3], asyncflow.OutcomeDone)
	a.settleAll(t, pipe, leases[3:4], asyncflow.OutcomeRejected)
	exec(t, url, `INSERT INTO tenant_acme.type_minutes
		(type, stage, at, latencies, late_votes, closed_windows, attempts, busy)
		VALUES ('pipe', 'only', date_trunc('minute', now()), '{0,0,0,5}', 0, 0, 4, 6)`)
	earlier(t, url, "3 min")

	a.run(t, "history")
	check := func(step time.Duration, want int64) {
		t.Helper()
		for _, name := range []string{"pipe", ""} {
			h := a.hours(t, name, step)
			assert.Equal(t, want, counted(h, submitted), "%q by %s", name, step)
			assert.Equal(t, int64(3), counted(h, succeeded), "%q by %s", name, step)
			assert.Equal(t, int64(1), counted(h, failed), "%q by %s", name, step)
		}
	}
	check(time.Minute, 5)
	check(time.Hour, 5)
	h := a.hours(t, "pipe", time.Minute)
	last := h.Points[len(h.Points)-1].Values
	assert.EqualValues(t, 1, last[store.HistoryRunning], "one is under way")
	for _, h := range []store.TypeHistory{h, a.hours(t, "", time.Hour)} {
		waits := int64(0)
		for _, p := range h.Points {
			if p.Waits().P50 > 0 {
				waits++
			}
		}
		assert.EqualValues(t, 1, waits)
		assert.Equal(t, int64(4), counted(h, endedByWorkers))
	}
	assert.Empty(t, a.hours(t, "idle", time.Minute).Points, "no row, no cost")

	// Another node takes over, and begins with what the counters tell.
	b := setup(t, url, "b", governance.Config{})
	b.run(t, "history")
	a.run(t, "fold")
	setup(t, url, "c", governance.Config{}).run(t, "history")
	check(time.Minute, 5)
	check(time.Hour, 5)

	// A transaction that was under way for minutes is committed.
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, submitted)
		VALUES ('pipe', now() - interval '5 min', 2)`)
	a.run(t, "history")
	check(time.Minute, 7)
	a.run(t, "fold")
	b.run(t, "history")
	check(time.Minute, 7)
	check(time.Hour, 7)

	// A transaction was open for half an hour: it is found every ten minutes.
	exec(t, url, `INSERT INTO tenant_acme.tallies (type, at, submitted)
		VALUES ('pipe', now() - interval '40 min', 2)`)
	_, err := a.RecordHistory(t.Context(), tenant, a.Clock.Now().Add(-10*time.Minute))
	require.NoError(t, err)
	check(time.Minute, 9)
}

// settleAll settles leases, all with the same outcome.
func (b *bundle) settleAll(
	t *testing.T, pipe *store.Type, leases []asyncflow.Lease, kind asyncflow.OutcomeKind,
) {
	t.Helper()
	for _, l := range leases {
		b.settle(t, pipe, l, asyncflow.Outcome{Kind: kind, Duration: time.Second})
	}
}

// A node that stops between any two statements, or loses the answer to its commit, leaves nothing
// half recorded: the next recording counts the same.
func TestHistoryIsRecordedWhole(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.submitAndLease(t, pipe, 5)
	earlier(t, url, "2 min")
	exec(t, url, `
		CREATE FUNCTION tenant_acme.stop() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'the node stops here'; END $$`)
	const stop = `CREATE TRIGGER stop AFTER INSERT ON tenant_acme.type_history
		EXECUTE FUNCTION tenant_acme.stop()`
	exec(t, url, stop)
	_, err := b.RecordHistory(t.Context(), tenant, time.Time{})
	require.ErrorContains(t, err, "the node stops here")
	assert.Empty(t, b.hours(t, "pipe", time.Minute).Points)
	exec(t, url, `DROP TRIGGER stop ON tenant_acme.type_history`)
	for range 2 {
		_, err = b.RecordHistory(t.Context(), tenant, time.Time{})
		require.NoError(t, err)
		assert.Equal(t, int64(5), counted(b.hours(t, "pipe", time.Minute), submitted))
	}

	// The fold deletes minutes and writes hours in one transaction.
	exec(t, url, `UPDATE tenant_acme.type_history SET at = at - interval '27 h' WHERE NOT hourly;
		DELETE FROM tenant_acme.type_history WHERE hourly`)
	exec(t, url, stop)
	_, err = b.FoldHistory(t.Context(), tenant)
	require.ErrorContains(t, err, "the node stops here")
	exec(t, url, `DROP TRIGGER stop ON tenant_acme.type_history`)
	n, err := b.FoldHistory(t.Context(), tenant)
	require.NoError(t, err)
	assert.Positive(t, n)
	n, err = b.FoldHistory(t.Context(), tenant)
	require.NoError(t, err)
	assert.Zero(t, n, "it is done")
	h, err := b.ReadHistory(t.Context(), store.HistoryQuery{Tenant: tenant, Type: "pipe",
		From: b.Clock.Now().Add(-48 * time.Hour), Step: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, int64(5), counted(h, submitted))
	exec(t, url, `UPDATE tenant_acme.type_history SET at = at - interval '31 days'`)
	n, err = b.FoldHistory(t.Context(), tenant)
	require.NoError(t, err)
	assert.Positive(t, n, "days that are over are deleted")
	exec(t, url, `DO $$ BEGIN ASSERT (SELECT count(*) FROM tenant_acme.type_history) = 0; END $$`)
}

// Hours that no node recorded by minute, as while only nodes of the version before ran, are found
// in the tallies.
func TestHistoryFindsHours(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.submitAndLease(t, pipe, 4)
	earlier(t, url, "5 h")
	b.run(t, "fold")
	b.run(t, "history")
	h, err := b.ReadHistory(t.Context(), store.HistoryQuery{Tenant: tenant, Type: "pipe",
		From: b.Clock.Now().Add(-7 * time.Hour), Step: time.Hour})
	require.NoError(t, err)
	assert.Equal(t, int64(4), counted(h, submitted))
}

// A tenant without activity rests, and so does one with only ended tasks once their minute is over.
func TestHistoryRests(t *testing.T) {
	pgtest.NotOnCitus(t, notCounted)
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.run(t, "history")
	assert.Empty(t, b.toRecord(t))
	leases := b.submitAndLease(t, pipe, 1)
	require.Eventually(t, func() bool { // Postgres counts the rows of other connections late
		return len(b.toRecord(t)) > 0
	}, patience, 100*time.Millisecond)
	for range 2 {
		b.run(t, "history")
		assert.Equal(t, []string{tenant}, b.toRecord(t), "a task is under way")
	}
	b.settleAll(t, pipe, leases, asyncflow.OutcomeDone)
	exec(t, url, `DELETE FROM tenant_acme.type_history`) // perhaps a minute ended meanwhile
	earlier(t, url, "2 min")
	require.Eventually(t, func() bool {
		b.run(t, "history")
		return len(b.toRecord(t)) == 0
	}, patience, 100*time.Millisecond)
	assert.Equal(t, int64(1), counted(b.hours(t, "pipe", time.Minute), submitted))
}

func (b *bundle) toRecord(t *testing.T) []string {
	t.Helper()
	all, err := b.gov.ToRecord(t.Context())
	require.NoError(t, err)
	return all
}

// A type that is deleted takes its history along. The history of all types keeps it.
func TestHistoryOfDeletedTypes(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.settleAll(t, pipe, b.submitAndLease(t, pipe, 2), asyncflow.OutcomeDone)
	earlier(t, url, "2 min")
	b.run(t, "history")
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	_, err := b.ReadHistory(t.Context(), store.HistoryQuery{Tenant: tenant, Type: "pipe"})
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	exec(t, url, `DO $$ BEGIN ASSERT NOT EXISTS (
		SELECT FROM tenant_acme.type_history WHERE type IS NOT NULL); END $$`)
	_, err = b.RecordHistory(t.Context(), tenant, time.Time{})
	require.NoError(t, err)
	assert.Equal(t, int64(2), counted(b.hours(t, "", time.Minute), submitted))
	b.pipe(t, "pipe")
	assert.Empty(t, b.hours(t, "pipe", time.Minute).Points, "another type of the same name")
}

// While a type is being deleted or changed, the recording doesn't wait. It takes the type later.
func TestHistoryPassesLockedTypes(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.submitAndLease(t, b.pipe(t, "one"), 2)
	b.submitAndLease(t, b.pipe(t, "two"), 3)
	earlier(t, url, "2 min")
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(),
		`SELECT FROM tenant_acme.task_types WHERE name = 'two' FOR UPDATE`)
	require.NoError(t, err)
	b.run(t, "history")
	assert.Equal(t, int64(2), counted(b.hours(t, "one", time.Minute), submitted))
	assert.Empty(t, b.hours(t, "two", time.Minute).Points)
	require.NoError(t, tx.Rollback(t.Context()))
	b.run(t, "history")
	assert.Equal(t, int64(3), counted(b.hours(t, "two", time.Minute), submitted))
	assert.Equal(t, int64(5), counted(b.hours(t, "", time.Minute), submitted))
}

// The history says when nodes recorded: also of idle tenants, with the gaps between two times, and
// not until a time at which a tenant's history couldn't be recorded.
func TestHistorySaysWhenItIsKnown(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	recorded := func() []store.HistorySpan { return b.hours(t, "pipe", 5*time.Minute).Recorded }
	assert.Empty(t, recorded(), "no node has recorded")
	b.run(t, "history")
	spans := recorded()
	require.Len(t, spans, 1)
	assert.WithinRange(t, b.Clock.Now(), spans[0].From, spans[0].Until.Add(time.Minute))

	exec(t, url, `UPDATE asyncflow.history_spans SET since = now() - interval '90 min',
		until = now() - interval '4 min'`)
	b.run(t, "history")
	spans = recorded()
	require.Len(t, spans, 1, "nodes record every minute, or somewhat later")
	assert.WithinRange(t, b.Clock.Now().Add(-90*time.Minute), spans[0].From,
		spans[0].From.Add(6*time.Minute))

	exec(t, url, `UPDATE asyncflow.history_spans SET until = now() - interval '30 min';
		INSERT INTO asyncflow.history_spans
		VALUES (now() - interval '40 d', now() - interval '32 d')`)
	b.run(t, "history")
	spans = recorded()
	require.Len(t, spans, 2)
	assert.WithinRange(t, b.Clock.Now().Add(-30*time.Minute), spans[0].From, spans[0].Until)
	assert.Zero(t, count(t, url, `SELECT count(*) FROM asyncflow.history_spans
		WHERE until < now() - interval '31 d'`), "forgotten")

	exec(t, url, `UPDATE asyncflow.history_spans SET since = now() - interval '20 min',
		until = now() - interval '10 min' WHERE since > now() - interval '5 min'`)
	exec(t, url, `ALTER TABLE tenant_acme.type_history RENAME TO away`)
	b.submitAndLease(t, pipe, 1)
	other := setup(t, url, "b", governance.Config{}) // which visits each tenant at first
	_, err := other.jobs["history"].Run(t.Context())
	require.Error(t, err)
	assert.Equal(t, 2, count(t, url, `SELECT count(*) FROM asyncflow.history_spans`))
}
