package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A redriven parent whose children run again has begun: its start_by doesn't end it, whatever its
// row in lifetimes says, nor after a change of it.
func TestExpireLeavesRedrivenParents(t *testing.T) {
	b := setupFanOut(t)
	spec := b.known().TaskType
	spec.StartBy = asyncflow.DeadlineAfter(time.Hour)
	b.put(spec)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.endChildren(goodEnd, badEnd)
	b.followUp()
	require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	assert.Zero(t, b.lifetimes(), "it has no end_by")
	_, err = b.Change(t.Context(), tenant, id, asyncflow.Patch{
		StartBy: asyncflow.DeadlineAfter(2 * time.Hour)})
	require.NoError(t, err)
	assert.Zero(t, b.lifetimes(), "after a change, too")
	b.followUp()
	b.exec(b.at(0, `INSERT INTO {lifetimes} VALUES ({number}, $1, now(), 0)`), id.Number)
	b.lapse(id, "start_by")
	b.expireTasks()
	require.Equal(t, asyncflow.StatusWaiting, b.task(id).Status)
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], goodEnd)
	b.followUp()
	require.Equal(t, "second", b.leaseAll(b.known(), 1)[0].Stage)
	b.checkTokens("pipe")
}
