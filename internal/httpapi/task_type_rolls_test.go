package httpapi_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

func (b *bundle) rolls(taskType string) api.RollList {
	b.t.Helper()
	return read[api.RollList](b, 200, b.call("GET", "/v1/task-types/"+taskType+"/rolls", ""))
}

// The rolls of a type say when the next one opens, and when they are dropped.
func TestTaskTypeRolls(t *testing.T) {
	b := setup(t)
	b.pipe()
	r := b.rolls("pipe").Data[0]
	assert.False(t, r.Own)
	assert.EqualValues(t, asyncflow.DefaultRollRows, r.NextTasks)
	assert.Zero(t, r.NextAt, "it has no task")
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/own",
		`{"stages":[{"name":"only"}],"roll_rows":1000,"roll_age":"48h","retention":"24h"}`).status)
	own, err := b.store.Catalog.Type("acme", "own")
	require.NoError(t, err)
	first := own.Set().End
	opened, err := b.store.OpenRoll(t.Context(), own.Set())
	require.NoError(t, err)
	require.True(t, opened)
	require.Equal(t, 201, b.call("POST", "/v1/tasks", `{"type":"own","context":1}`).status)

	list := b.rolls("own")
	assert.Zero(t, list.Older)
	require.Len(t, list.Data, 2)
	open, old := list.Data[0], list.Data[1]
	assert.Equal(t, api.Roll{Position: first + 1, Own: true, OpenedAt: open.OpenedAt,
		Bytes: open.Bytes, TasksEstimate: 1, Retention: asyncflow.NewDuration(24 * time.Hour),
		NextTasks: 1000, NextAt: open.OpenedAt.Add(48 * time.Hour)}, open)
	assert.Positive(t, open.Bytes)
	sealed := old.OpenedAt.Add(time.Minute)
	_, err = b.db.Exec(t.Context(), `UPDATE tenant_acme.rolls SET sealed_at = $1, drained_at = $1,
		ready_dropped = true, idle_since = $1 WHERE table_set = 'own' AND position = $2`, sealed, first)
	require.NoError(t, err)
	old = b.rolls("own").Data[1]
	for _, at := range []time.Time{old.SealedAt, old.DrainedAt, old.IdleSince} {
		assert.True(t, sealed.Equal(at), "%s", at)
	}
	assert.Equal(t, old.IdleSince.Add(24*time.Hour), old.DropsAt)
	assert.Zero(t, old.NextTasks)
}

func TestTaskTypeRollsRefused(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	const path = "/v1/task-types/pipe/rolls"
	assert.Equal(t, 404, b.call("GET", "/v1/task-types/none/rolls", "").status)
	assert.Equal(t, 404, b.callAs(b.newToken("other", "read"), "GET", path, "").status,
		"it is of another tenant")
	assert.Equal(t, 400, b.call("GET", "/v1/task-types/No/rolls", "").status)
	assert.Equal(t, 401, b.callAs("", "GET", path, "").status)
	assert.Equal(t, 403, b.callAs(b.newToken("acme", "submit", "manage"), "GET", path, "").status)
}
