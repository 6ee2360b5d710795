package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fillKeyless puts due tasks in line with rows that name no key, as of a type without a flow.
func (b *bundle) fillKeyless(tasks int) {
	b.t.Helper()
	b.fillKeys(1, 1, tasks)
	_, err := b.db.Exec(b.t.Context(), b.at(1, `UPDATE {ready} SET key = NULL`))
	require.NoError(b.t, err)
}

// A type that becomes fair uses all of its capacity, however many tasks are in line without a key.
func TestFairLaterIsWorkConserving(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.fillKeyless(4000)
	b.put(fairStages(nil))
	for range 4 {
		require.Len(t, b.fairLease(900), 900)
	}
	require.Len(t, b.fairLease(900), 400)
	b.checkTokens("pipe")
}

// A task with no key in its row gets its turn soon, behind however many tasks of a key it is in
// line.
func TestFairLaterBehindABacklog(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.fillKeys(1, 1, 5000)
	b.submit(newTask("1"))
	b.put(fairStages(nil))
	found := map[string]int{}
	for range 8 {
		leases := b.fairLease(2)
		require.Len(t, leases, 2)
		for _, l := range leases {
			found[l.Options.FlowKey]++
		}
	}
	assert.Equal(t, map[string]int{"000000": 15, "": 1}, found)
	b.checkTokens("pipe")
}
