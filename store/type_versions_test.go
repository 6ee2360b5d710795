package store_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// The versions of a type are kept as they were applied, until the type is deleted.
func TestTypeVersions(t *testing.T) {
	b := setup(t)
	_, err := b.TypeVersions(t.Context(), tenant, "pipe")
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	b.put(twoStages())
	first, err := b.TypeVersion(t.Context(), tenant, "pipe", 1)
	require.NoError(t, err)
	require.True(t, first.Current)

	changed := twoStages()
	changed.MaxSteps = 7
	b.put(changed)
	b.put(changed) // the same again is no version
	mapped := twoStages()
	mapped.Stages = mapped.Stages[:1]
	mapped.StageMapping = map[string]string{twoStages().Stages[1].Name: mapped.Stages[0].Name}
	b.put(mapped)

	all, err := b.TypeVersions(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	require.Len(t, all, 3)
	for i, v := range all {
		require.Equal(t, 3-i, v.Version)
		require.Equal(t, i == 0, v.Current)
		require.False(t, v.AppliedAt.IsZero())
	}
	assert.True(t, first.AppliedAt.Equal(all[2].AppliedAt))
	old, err := b.TypeVersion(t.Context(), tenant, "pipe", 1)
	require.NoError(t, err)
	assert.False(t, old.Current)
	assert.Equal(t, first.Type, old.Type)
	second, err := b.TypeVersion(t.Context(), tenant, "pipe", 2)
	require.NoError(t, err)
	assert.Equal(t, 7, second.Type.MaxSteps)
	third, err := b.TypeVersion(t.Context(), tenant, "pipe", 3)
	require.NoError(t, err)
	assert.Equal(t, mapped.StageMapping, third.Type.StageMapping)
	_, err = b.TypeVersion(t.Context(), tenant, "pipe", 4)
	require.EqualError(t, err, "task type pipe has no version 4: its present version is 3")

	b.put(old.Type) // back to the first one
	fourth, err := b.TypeVersion(t.Context(), tenant, "pipe", 4)
	require.NoError(t, err)
	assert.Equal(t, first.Type.Stages, fourth.Type.Stages)

	// A node of the version before deletes the type without these rows: there are none of a new
	// type.
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", false))
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.type_versions`))
	b.exec(`INSERT INTO tenant_acme.type_versions (name, version, spec, applied_at)
		SELECT 'pipe', v, '{}', now() FROM generate_series(1, 3) v`)
	b.put(twoStages())
	all, err = b.TypeVersions(t.Context(), tenant, "pipe")
	require.NoError(t, err)
	require.Len(t, all, 1)
	b.put(changed)
	b.put(twoStages())
	b.put(changed)
	old, err = b.TypeVersion(t.Context(), tenant, "pipe", 2)
	require.NoError(t, err)
	require.Equal(t, 7, old.Type.MaxSteps)
}

// However often a type changes, and however long its documents are, few are kept.
func TestTypeVersionsAreBounded(t *testing.T) {
	b := setup(t)
	put := func(i int, words int) {
		changed := twoStages()
		changed.MaxSteps = 1 + i
		changed.Stages[0].Retry.Interval = asyncflow.Rule("attempt" + strings.Repeat(" + 1", words))
		b.put(changed)
	}
	kept := func() (all []store.AppliedVersion, bytes int) {
		all, err := b.TypeVersions(t.Context(), tenant, "pipe")
		require.NoError(t, err)
		return all, b.count(`SELECT coalesce(sum(octet_length(spec::text)), 0)
			FROM tenant_acme.type_versions`)
	}
	const more = store.VersionsKept + 10
	for i := range more {
		put(i, 0)
	}
	all, bytes := kept()
	require.Len(t, all, store.VersionsKept+1)
	require.Equal(t, more, all[0].Version)
	require.Less(t, bytes, store.VersionBytes)
	_, err := b.TypeVersion(t.Context(), tenant, "pipe", 1)
	require.ErrorContains(t, err, "version 1 of task type pipe isn't kept: asyncflow keeps the")

	// Documents of some 40 KiB.
	b.exec(`UPDATE tenant_acme.type_versions SET spec = jsonb_set(spec::jsonb, '{padding}',
		to_jsonb(repeat('x', 40000)))::json`)
	put(0, 10)
	all, bytes = kept()
	require.Less(t, len(all), 30)
	require.LessOrEqual(t, bytes, store.VersionBytes)
}
