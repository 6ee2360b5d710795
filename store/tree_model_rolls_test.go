package store_test

import (
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow/store"
)

// roll opens another roll and seals the one before, so that children of one parent are in several.
func (m *treeMachine) roll(t *rapid.T) {
	set := m.kind(rapid.SampledFrom(m.types).Draw(t, "set of")).Set()
	if set.End-set.First >= 2 || rapid.IntRange(0, 3).Draw(t, "really") > 0 {
		t.Skip("enough rolls")
	}
	ctx := m.b.t.Context()
	if set.Begin < set.End {
		_, err := m.b.EmptyRoll(ctx, set, set.Begin)
		require.NoError(t, err)
		drained, err := m.b.DrainRoll(ctx, set)
		require.NoError(t, err)
		require.True(t, drained)
	}
	set = m.again(set)
	opened, err := m.b.OpenRoll(ctx, set)
	require.NoError(t, err)
	require.True(t, opened)
	set = m.again(set)
	sealed, err := m.b.SealRoll(ctx, set, set.End-1)
	require.NoError(t, err)
	require.True(t, sealed)
}

// again returns a set as it is now.
func (m *treeMachine) again(set *store.TableSet) *store.TableSet {
	for _, name := range m.types {
		if now := m.kind(name).Set(); now.Name == set.Name {
			return now
		}
	}
	m.t.Fatal("the set is gone")
	return nil
}

// clear deletes all tasks, and the rolls but the open ones.
func (m *treeMachine) clear() {
	var sql strings.Builder
	for _, name := range m.types {
		kind := m.kind(name)
		for _, position := range kind.Rolls() {
			sql.WriteString(fill(kind, position, `DELETE FROM {task}; DELETE FROM {journal};`))
			if position >= kind.Set().Begin {
				sql.WriteString(fill(kind, position, `DELETE FROM {ready};`))
			}
		}
	}
	m.b.exec(sql.String() + `
		DELETE FROM tenant_acme.lease; DELETE FROM tenant_acme.wait; DELETE FROM tenant_acme.edges;
		DELETE FROM tenant_acme.outbox; DELETE FROM tenant_acme.fan_outs;
		DELETE FROM tenant_acme.notifications;
		DELETE FROM tenant_acme.tallies; DELETE FROM tenant_acme.idempotency_keys`)
	for _, name := range m.types {
		for m.kind(name).Set().First < m.kind(name).Set().End {
			m.dropRoll(m.kind(name).Set())
		}
	}
	require.NoError(m.t, m.mortal.Catalog.RefreshTenant(m.b.t.Context(), tenant))
}

// dropRoll drops the first roll of a set, which is empty.
func (m *treeMachine) dropRoll(set *store.TableSet) {
	ctx, first := m.b.t.Context(), set.First
	if set.Begin == first {
		_, err := m.b.DrainRoll(ctx, set)
		require.NoError(m.t, err)
	}
	_, err := m.b.ClearRoll(ctx, m.again(set), first)
	require.NoError(m.t, err)
	_, err = m.b.IdleRoll(ctx, m.again(set), first)
	require.NoError(m.t, err)
	dropped, err := m.b.DropRoll(ctx, m.again(set), m.b.Clock.Now().Add(time.Hour))
	require.NoError(m.t, err)
	require.True(m.t, dropped)
}
