package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// A snoozed task of an ordered flow key keeps the key to itself, unless the key parks tasks that
// wait for another attempt.
func TestSnoozeKeepsFlowKey(t *testing.T) {
	flows := map[string]asyncflow.Flow{"skip": skips, "block": blocks, "park": parks}
	for name, flow := range flows {
		for pause, after := range map[string]time.Duration{"seconds": 30 * time.Second,
			"hours": 3 * time.Hour} {
			t.Run(name+" "+pause, func(t *testing.T) {
				b := setup(t)
				spec := twoStages()
				spec.Flow = &flow
				b.put(spec)
				first := b.submit(keyed("a", `1`))[0].ID
				next := b.submit(keyed("a", `2`))[0].ID
				leases := b.admitAll()
				require.Len(t, leases, 1)
				require.Equal(t, first, leases[0].ID)
				b.snooze(leases[0], after)
				if flow.OnFailure == asyncflow.FlowPark {
					require.Equal(t, next, b.soon()[0].ID)
					return
				}
				b.keyBlocked(next)
				_, err := b.Change(t.Context(), tenant, first,
					asyncflow.Patch{RunAt: b.Clock.Now()})
				require.NoError(t, err)
				for range 2 { // its stages
					leases = b.soon()
					require.Len(t, leases, 1)
					require.Equal(t, first, leases[0].ID)
					b.settle(b.known(), leases[0], goodEnd)
				}
				require.NoError(t, b.ReleaseKeys(t.Context(), b.known(), []string{"a"}))
				require.Equal(t, next, b.soon()[0].ID)
				b.exec(`DO $$ BEGIN
					ASSERT NOT EXISTS (SELECT FROM tenant_acme.flow_blocks); END $$`)
			})
		}
	}
}

// A cancelled task that was snoozed frees its flow key. A key of on_failure block is still blocked
// by one that failed, and the release of the key frees only that.
func TestSnoozedTasksEndTheirHold(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	spec := twoStages()
	spec.Flow = &blocks
	b.put(spec)
	ids := b.submit(keyed("a", `1`), keyed("a", `2`), keyed("a", `3`))
	b.snooze(b.admitAll()[0], time.Hour)
	b.keyBlocked(ids[1].ID)
	n, err := b.UnblockKey(t.Context(), tenant, "pipe", "a")
	require.NoError(t, err)
	require.Zero(t, n)
	b.keyBlocked(ids[1].ID)
	_, err = b.Cancel(t.Context(), tenant, ids[0].ID, "")
	require.NoError(t, err)

	second := b.soon()[0]
	require.Equal(t, ids[1].ID, second.ID)
	b.snooze(second, time.Hour)
	_, err = b.Change(t.Context(), tenant, second.ID, asyncflow.Patch{RunAt: b.Clock.Now()})
	require.NoError(t, err)
	b.settle(b.known(), b.soon()[0], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	b.keyBlocked(ids[2].ID)
	n, err = b.UnblockKey(t.Context(), tenant, "pipe", "a")
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, ids[2].ID, b.soon()[0].ID)
}
