package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// The end of a lease moves if the lease stands and, if asked for, its end is still the expected
// one. A repeat changes nothing; only an expected end then no longer matches.
func TestExtensions(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"in a commit": false, "again": true} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			pipe := b.put(twoStages())
			items := leased(b.insertions(pipe, `1`, `2`, `3`, `4`)...)
			require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items}}))
			had := b.endsOf(pipe)
			until := had[`1`].Add(time.Hour)
			right, wrong := had[`2`], had[`3`].Add(time.Second)
			all := []*store.Extension{
				{ID: items[0].ID, Seq: 1, Until: until},
				{ID: items[1].ID, Seq: 1, Until: until, Had: &right},
				// from an earlier try
				{ID: items[2].ID, Seq: 1, Until: until, Had: &wrong, Stands: true},
				{ID: items[3].ID, Seq: 2, Until: until},
			}
			if again {
				require.NoError(t, b.ExtendAgain(t.Context(), pipe, all))
			} else {
				require.NoError(t, b.commit([]*store.Writes{{Type: pipe, Extended: all}}))
			}
			for i, context := range []string{`1`, `2`, `3`, `4`} {
				assert.Equal(t, i < 2, all[i].Stands, context)
				if i < 2 {
					had[context] = until
				}
			}
			assert.Equal(t, had, b.endsOf(pipe))
			require.NoError(t, b.ExtendAgain(t.Context(), pipe, all[:1]))
			assert.True(t, all[0].Stands)
			assert.Equal(t, had, b.endsOf(pipe))
			b.checkTokens("pipe")
		})
	}
}

// A lease may be extended and end in one commit: it stood until then.
func TestExtensionAndEndOfALease(t *testing.T) { eachSet(t, extensionAndEndOfALease) }

func extensionAndEndOfALease(t *testing.T, b *bundle) {
	pipe := b.put(twoStages())
	items := leased(b.insertions(pipe, `1`)...)
	require.NoError(t, b.commit([]*store.Writes{{Type: pipe, New: items}}))
	e := &store.Extension{ID: items[0].ID, Seq: 1, Until: items[0].Lease.Until.Add(time.Hour)}
	w := &store.Writes{Type: pipe, Extended: []*store.Extension{e},
		Settled: []*store.Ending{goesOn(b.ending(pipe, *items[0].Lease, stageDone))}}
	require.NoError(t, b.commit([]*store.Writes{w}))
	assert.True(t, e.Stands)
	l, stands, err := b.LeaseOf(t.Context(), tenant, items[0].ID, 2)
	require.NoError(t, err)
	require.True(t, stands)
	assert.WithinDuration(t, l.LeasedAt.Add(time.Second+store.LeaseMargin), l.Until,
		time.Microsecond, "the next lease has an end of its own")
	assert.Equal(t, tallied{Submitted: 1, Attempts: 1}, first(b.tallies(tenant, "pipe")))
	require.NoError(t, b.ExtendAgain(t.Context(), pipe, []*store.Extension{e}))
	assert.False(t, e.Stands)
	assert.Equal(t, store.Settled{Written: asyncflow.OutcomeDone},
		b.settleAgain(pipe, w.Settled[0]))
	b.checkTokens("pipe")
}
