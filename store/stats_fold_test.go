package store_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// scatter adds tallies of three types, from now to 100 days ago.
func (b *bundle) scatter(rows int) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), `
		INSERT INTO tenant_acme.tallies (type, at, submitted, attempts, failures, succeeded, failed,
		    cancelled)
		SELECT 'type' || n % 3, now() - CASE n % 4 WHEN 0 THEN interval '100 days' WHEN 1
		  THEN interval '3 hours' ELSE interval '10 min' END * random(),
		  (random() * 9)::int, (random() * 9)::int, (random() * 9)::int, (random() * 9)::int,
		  (random() * 9)::int - 4, (random() * 9)::int - 4
		FROM generate_series(1, $1) n`, rows)
	require.NoError(b.t, err)
}

func (b *bundle) sums() (sums [3]tallied, rows int) {
	b.t.Helper()
	for i, name := range []string{"type0", "type1", "type2"} {
		s, n := b.tallies(tenant, name)
		sums[i] = s
		rows += n
	}
	return sums, rows
}

// redriven returns how many tasks failed, were cancelled, and were redriven after each.
func (b *bundle) redriven() (sums [4]int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), `
		SELECT sum(greatest(failed, 0))::bigint, sum(greatest(cancelled, 0))::bigint,
		  sum(greatest(-failed, 0))::bigint, sum(greatest(-cancelled, 0))::bigint
		FROM tenant_acme.tallies`).
		Scan(&sums[0], &sums[1], &sums[2], &sums[3]))
	return sums
}

// foldAll folds until there is nothing left to do.
func (b *bundle) foldAll() (taken int) {
	b.t.Helper()
	for {
		n, err := b.Fold(b.t.Context(), tenant)
		require.NoError(b.t, err)
		require.LessOrEqual(b.t, n, store.FoldBatch)
		taken += n
		if n < store.FoldBatch {
			return taken
		}
	}
}

// No fold changes a sum: neither the first one, in several batches, nor the next one, after more
// rows came for times that were folded already.
func TestFoldKeepsTheSums(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	for range 2 {
		b.scatter(2*store.FoldBatch + 100)
		before, rows := b.sums()
		redriven := b.redriven()
		taken := b.foldAll()
		after, left := b.sums()
		assert.Equal(t, before, after)
		assert.Equal(t, redriven, b.redriven())
		assert.Less(t, left, rows/3)
		assert.Greater(t, taken, store.FoldBatch, "more than a batch")
		b.checkFolded()
	}
	var recent int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.tallies WHERE at > now() - interval '1 min'`).Scan(&recent))
	assert.Greater(t, recent, 2000, "tallies of the rates stay")
}

// checkFolded asserts that there is one row for each minute, hour and day, by age.
func (b *bundle) checkFolded() {
	b.t.Helper()
	for _, c := range []struct{ unit, older, younger string }{
		{"minute", "3 min", "2 h"}, {"hour", "3 h 1 min", "30 days"},
		{"day", "31 days 1 min", "1000 days"},
	} {
		var rows, wrong, doubled int
		require.NoError(b.t, b.db.QueryRow(b.t.Context(), `
			SELECT count(*), count(*) FILTER (WHERE at <> date_trunc($1, at, 'UTC')),
			  count(*) - count(DISTINCT (type, at, failed < 0, cancelled < 0))
			FROM tenant_acme.tallies
			WHERE at < now() - $2::text::interval
			  AND at > now() - $3::text::interval`, c.unit, c.older, c.younger).
			Scan(&rows, &wrong, &doubled))
		assert.Positive(b.t, rows, c.unit)
		assert.Zero(b.t, wrong, "rows that don't stand at the beginning of their %s", c.unit)
		assert.Zero(b.t, doubled, "rows of the same %s", c.unit)
	}
}

// Nodes that fold at once, while rows are added, lose and double nothing.
func TestFoldWhileRowsAreAdded(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	far := open(t, b.url, "node-2")
	b.scatter(5000)
	before, _ := b.sums()
	ctx, stop := context.WithCancel(t.Context())
	var added int64
	var adding, folding sync.WaitGroup
	adding.Go(func() {
		for ctx.Err() == nil {
			_, err := b.db.Exec(t.Context(), `INSERT INTO tenant_acme.tallies (type, at, submitted)
				SELECT 'type' || n % 3, now() - interval '30 min' * random(), 1 FROM generate_series(1, 30) n`)
			if !assert.NoError(t, err) {
				return
			}
			added += 10
		}
	})
	for _, node := range []*bundle{b, far} {
		folding.Go(func() {
			for range 30 {
				_, err := node.Fold(t.Context(), tenant)
				assert.NoError(t, err)
			}
		})
	}
	waitAll(t, &folding)
	stop()
	waitAll(t, &adding)
	b.foldAll()
	after, _ := b.sums()
	for i := range before {
		before[i].Submitted += added
	}
	assert.Positive(t, added)
	assert.Equal(t, before, after)
	b.checkFolded()
}

// Without anything to fold, a fold writes nothing: the rows stay in their place.
func TestFoldLeavesFoldedRowsAlone(t *testing.T) {
	b := setupTwo(t)
	_, err := b.db.Exec(t.Context(), `INSERT INTO tenant_acme.tallies (type, at, submitted) VALUES
		('pipe', date_trunc('minute', now() - interval '10 min'), 1),
		('pipe', date_trunc('hour', now() - interval '9 h'), 1),
		('pipe', date_trunc('day', now() - interval '40 days', 'UTC'), 1),
		('pipe', now(), 1), ('pipe', now(), 1)`)
	require.NoError(t, err)
	assert.Zero(t, b.foldAll())
	n, err := b.Fold(t.Context(), "other")
	require.NoError(t, err)
	assert.Zero(t, n)
	sums, rows := b.tallies(tenant, "pipe")
	assert.Equal(t, []any{int64(5), 5}, []any{sums.Submitted, rows})
}
