package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// sweep lets the counts of children be compared, and returns how many it mended. A dry run says the
// same before.
func (b *bundle) sweep() (n int) {
	b.t.Helper()
	due, err := b.DryRunFanOuts(b.t.Context(), tenant)
	require.NoError(b.t, err)
	for _, d := range due {
		n += d.Rows
	}
	mended, err := b.SweepFanOuts(b.t.Context(), tenant)
	require.NoError(b.t, err)
	require.Equal(b.t, n, mended)
	return n
}

// Whatever made the counts of a task's children wrong, it goes on once they are over.
func TestWrongCountsAreMended(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"too few":           `UPDATE tenant_acme.fan_outs SET failed = 0`,
		"too many":          `UPDATE tenant_acme.fan_outs SET succeeded = 1, cancelled = 4`,
		"nothing":           `SELECT`,
		"one for the other": `UPDATE tenant_acme.fan_outs SET succeeded = 1, failed = 0`,
	} {
		t.Run(name, func(t *testing.T) {
			b := setupFanOut(t)
			id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
			require.Zero(t, b.sweep())
			leases := b.leaseAll(b.known(), 2)
			b.settle(b.known(), leases[0], badEnd)
			require.Zero(t, b.sweep(), "its row of outbox is there")
			b.followUp()
			require.Zero(t, b.sweep())
			b.exec(sql)
			wrong := 1
			if name == "nothing" {
				wrong = 0
			}
			require.Equal(t, wrong, b.sweep())
			require.Zero(t, b.sweep(), "it is mended")
			b.followUp()
			b.settle(b.known(), leases[1], goodEnd)
			b.followUp()
			task := b.comesTo(id, asyncflow.StatusPending)
			assert.Equal(t, "second", task.Stage)
			assert.Equal(t, &asyncflow.Children{Total: 2, Succeeded: 1, Failed: 1}, task.Children)
			require.Zero(t, b.sweep())
			b.checkTokens("pipe")
		})
	}
}

// A task goes on after the end of its children although that was lost, with its count or without.
func TestLostEndsOfChildren(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(goodEnd, goodEnd)
	b.exec(`DELETE FROM tenant_acme.outbox`)
	b.followUp()
	require.Equal(t, asyncflow.WaitChildren, b.task(id).WaitsFor)
	require.Equal(t, 1, b.sweep())
	b.exec(`DELETE FROM tenant_acme.outbox`)
	require.Equal(t, 1, b.sweep(), "the counts are right, but nobody looks at them")
	b.followUp()
	require.Equal(t, "second", b.comesTo(id, asyncflow.StatusPending).Stage)
}

// What a sweep corrects is in the audit, with the node that did it.
func TestCorrectedCountsAreAudited(t *testing.T) {
	b := setupFanOut(t)
	id := b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
	leases := b.leaseAll(b.known(), 2)
	b.settle(b.known(), leases[0], goodEnd)
	b.followUp()
	b.exec(`UPDATE tenant_acme.fan_outs SET succeeded = 0`)
	require.Equal(t, 1, b.sweep())
	entries, err := b.Audit(t.Context(), store.AuditFilter{Tenant: tenant,
		Action: asyncflow.AuditChildren, Limit: 10})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	e := entries[0]
	assert.Equal(t, asyncflow.AuditEntry{ID: e.ID, At: e.At, Origin: asyncflow.AuditFromNode,
		Tenant: tenant, Subject: "node-1", Action: "children.correct", ObjectType: "task",
		Object: id.String(), Outcome: asyncflow.AuditDone, Calls: 1,
		Detail: map[string]any{"children": json.Number("2"), "counted": json.Number("0"),
			"ended": json.Number("1")}}, e)
}

// A sweep goes on after the last task that it looked at, and begins anew after the end.
func TestSweepsOfFanOutsGoOn(t *testing.T) {
	b := setupFanOut(t)
	b.SetSweptChildren(3)
	for range 2 {
		b.fanOut(asyncflow.FanOut{Items: "/items", OnChildFailure: allSettled})
		b.leaseAll(b.known(), 2)
	}
	b.exec(`UPDATE tenant_acme.fan_outs SET failed = 1`)
	for range 2 {
		require.Equal(t, 1, b.sweep())
	}
	require.Zero(t, b.sweep())
	b.exec(`UPDATE tenant_acme.fan_outs SET failed = 1`)
	far := open(t, b.url, "far")
	n, err := far.SweepFanOuts(t.Context(), tenant)
	require.NoError(t, err)
	require.Equal(t, 2, n, "two that fit into one sweep")
}
