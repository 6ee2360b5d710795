package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// expiredRows returns how many rows count expired tasks.
func (b *bundle) expiredRows() int {
	b.t.Helper()
	return b.count(`SELECT count(*) FROM tenant_acme.expired_tallies`)
}

// Expired tasks are counted apart among the failed ones, by whatever they end, until they are
// redriven. Only for these are there rows in expired_tallies.
func TestExpiredAreCounted(t *testing.T) { eachSet(t, testExpiredAreCounted) }

func testExpiredAreCounted(t *testing.T, b *bundle) {
	pipe := b.put(patient())
	all := b.submit(within(0, time.Hour), within(0, time.Hour), within(0, time.Hour), newTask("1"))
	for _, l := range b.leaseAll(pipe, 4) {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeReleased}
		switch l.ID {
		case all[0].ID: // its report is late, though no job ran
			l.Options.Lifetime.EndBy = b.Clock.Now()
			o = doneWith(`2`)
		case all[3].ID:
			o = badEnd
		}
		b.settle(pipe, l, o)
	}
	counts := func() [2]int64 {
		s := b.stats("pipe")
		return [2]int64{s.Expired, s.Failed}
	}
	require.Equal(t, [2]int64{1, 2}, counts())
	b.lapse(all[1].ID, "end_by")
	b.expireTasks()
	b.lapse(all[2].ID, "end_by")
	b.expireTasks()
	require.Equal(t, [2]int64{3, 4}, counts())
	for _, id := range []asyncflow.TaskID{all[1].ID, all[3].ID} {
		_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
		require.NoError(t, err)
	}
	require.Equal(t, [2]int64{2, 2}, counts())
	require.Greater(t, b.expiredRows(), 1)
	b.foldAll()
	require.Equal(t, 1, b.expiredRows())
	require.Zero(t, b.foldAll(), "there is nothing left to add up")
	require.Equal(t, [2]int64{2, 2}, counts())
	b.checkTallies("pipe")
}

// A node of the version before redrives an expired task and takes off only the failure: of failed
// tasks at most all are expired ones. Its fold leaves the rows of expired tasks alone.
func TestExpiredBesideAnOlderNode(t *testing.T) {
	b := setup(t)
	b.put(patient())
	id := b.submit(within(0, time.Hour))[0].ID
	b.lapse(id, "end_by")
	b.expireTasks()
	b.exec(`INSERT INTO tenant_acme.tallies (type, at, failed) VALUES ('pipe', now(), -1)`)
	s := b.stats("pipe")
	require.Equal(t, []int64{0, 0}, []int64{s.Expired, s.Failed})
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", true))
	require.Zero(t, b.expiredRows(), "they go with their type")
}

// What the job reads for a task doesn't grow with the tasks of its type.
func TestExpireReadsFewRows(t *testing.T) {
	b := setup(t)
	pipe := b.put(patient())
	var ids []int64
	for _, one := range b.submit(within(0, time.Hour), within(0, time.Hour)) {
		ids = append(ids, one.ID.Number)
		b.lapse(one.ID, "end_by")
	}
	b.submitMany(1000)
	err := pgx.BeginFunc(t.Context(), b.db, func(tx pgx.Tx) error {
		require.NoError(t, store.Pin(t.Context(), tx))
		x, err := trees.Expire(t.Context(), tx, pipe, ids, b.Clock.Now())
		require.NoError(t, err)
		require.Len(t, x.Settled, 2)
		rows, err := tx.Query(t.Context(), `
			SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)
			FROM pg_stat_xact_user_tables WHERE schemaname = 'tenant_acme'`)
		require.NoError(t, err)
		var table string
		var read int
		_, err = pgx.ForEachRow(rows, []any{&table, &read}, func() error {
			assert.Less(t, read, 100, table)
			return nil
		})
		require.NoError(t, err)
		return nil
	})
	require.NoError(t, err)
}

// An erased task is without a lifetime, but still counts as expired.
func TestExpiredAndErased(t *testing.T) {
	b := setup(t)
	b.put(patient())
	id := b.submit(within(0, time.Hour))[0].ID
	b.lapse(id, "end_by")
	b.expireTasks()
	b.erase(id)
	task := b.task(id)
	assert.Nil(t, task.Options.Lifetime)
	assert.Empty(t, task.Error)
	assert.EqualValues(t, 1, b.stats("pipe").Expired)
	b.checkTallies("pipe")
}

// A redrive of a task that expired before such tasks were counted takes nothing off the sum, so
// that it hides no later one.
func TestExpiredBeforeTheyWereCounted(t *testing.T) {
	eachSet(t, testExpiredBeforeTheyWereCounted)
}

func testExpiredBeforeTheyWereCounted(t *testing.T, b *bundle) {
	b.put(patient())
	all := b.submit(within(0, time.Hour), within(0, time.Hour), within(0, time.Hour))
	expire := func(id asyncflow.TaskID) {
		b.lapse(id, "end_by")
		b.expireTasks()
	}
	expire(all[0].ID)
	expire(all[1].ID)
	// As if a node from before had run.
	b.exec(`DELETE FROM tenant_acme.expired_tallies`)
	b.exec(`UPDATE tenant_acme.expired_since SET at = now()`)
	b.exec(`INSERT INTO tenant_acme.expired_since VALUES (now() - interval '1 day')`) // of a restore
	expire(all[2].ID)
	require.EqualValues(t, 1, b.stats("pipe").Expired)
	for _, one := range all[:2] {
		_, err := b.Redrive(t.Context(), tenant, one.ID, store.Redrive{})
		require.NoError(t, err)
		require.EqualValues(t, 1, b.stats("pipe").Expired)
	}
	b.checkTallies("pipe")
	_, err := b.Redrive(t.Context(), tenant, all[2].ID, store.Redrive{})
	require.NoError(t, err)
	expire(all[0].ID)
	require.EqualValues(t, 1, b.stats("pipe").Expired)
	b.checkTallies("pipe")
}

// A sum below zero, which a node from before may leave, doesn't outlast the next fold.
func TestExpiredBelowZero(t *testing.T) {
	b := setup(t)
	b.put(patient())
	b.exec(`INSERT INTO tenant_acme.expired_tallies (type, expired) VALUES ('pipe', -7)`)
	require.Equal(t, 1, b.foldAll())
	require.Zero(t, b.expiredRows())
	b.exec(`INSERT INTO tenant_acme.expired_tallies (type, expired)
		VALUES ('pipe', -7), ('pipe', 2)`)
	require.Equal(t, 2, b.foldAll())
	require.Zero(t, b.expiredRows())
	id := b.submit(within(0, time.Hour))[0].ID
	b.lapse(id, "end_by")
	b.expireTasks()
	require.EqualValues(t, 1, b.stats("pipe").Expired)
	b.checkTallies("pipe")
}

// Such tasks are counted since the migration that made the table, in each tenant.
func TestExpiredSinceTheMigration(t *testing.T) {
	b := setup(t)
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.expired_since s
		JOIN tenant_acme.schema_versions v ON v.tstamp::timestamptz = s.at
		WHERE v.version_id = 38`))
}
