package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// idle asserts whether the first roll is idle.
func (b *bundle) idle(want bool) {
	b.t.Helper()
	idle, err := b.IdleRoll(b.t.Context(), b.known().Set(), 1)
	require.NoError(b.t, err)
	require.Equal(b.t, want, idle)
}

// drop tries to drop the first roll, as if a retention that began at a time were over.
func (b *bundle) drop(since time.Time) bool {
	b.t.Helper()
	dropped, err := b.DropRoll(b.t.Context(), b.known().Set(), since)
	require.NoError(b.t, err)
	return dropped
}

// The retention of a roll counts from its last event, wherever Postgres put its row in the journal:
// after a rollback and a vacuum that is not at the end.
func TestRetentionCountsFromTheLastEvent(t *testing.T) {
	pgtest.NotOnCitus(t, countedThere)
	b := setup(t)
	b.put(twoStages())
	later := newTask(`"later"`)
	later.Delay = asyncflow.NewDuration(time.Hour)
	straggler := b.submit(later)[0].ID
	journal := b.at(1, `INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome, final)
		SELECT {number}, (1::bigint << 40) + 500000 + n, 1, now() - interval '1 day', 'first', 1, 'done',
		  'succeeded' FROM generate_series(1, 20000) n`)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), journal)
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	b.exec(journal)
	b.exec(`VACUUM tenant_acme.journal_1`)
	b.rollAndClear()
	b.idle(false)

	before := b.Clock.Now()
	_, err = b.Cancel(t.Context(), tenant, straggler, "")
	require.NoError(t, err)
	require.Positive(t, b.count(`SELECT count(*) FROM tenant_acme.journal_1
		WHERE outcome = 'cancelled' AND (ctid::text::point)[0]
		  < pg_relation_size('tenant_acme.journal_1') / 8192 - 64`), "it is not at the end")
	b.idle(true)
	require.False(t, b.drop(before))
	require.True(t, b.drop(b.Clock.Now()))
}

// The retention starts again with a redrive, also if its task ended again before anybody looked.
func TestRetentionAfterARedrive(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	b.rollAndClear()
	b.idle(true)
	before := b.Clock.Now()
	for range 2 {
		_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
		require.NoError(t, err)
		b.idle(false)
		require.Equal(t, []asyncflow.TaskID{id}, b.failAll())
		require.False(t, b.drop(b.Clock.Now()), "nobody has looked")
	}
	b.idle(true)
	require.False(t, b.drop(before))
	require.True(t, b.drop(b.Clock.Now()))
}
