package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A redriven parent with children that run again is begun: its start_by doesn't end it, whatever
// its row in lifetimes says, nor after a change of it.
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

// What a settlement writes about a lifetime is newer than what the job read: the job neither waits
// for it nor writes over it, and doesn't count it.
func TestExpireLeavesNewerRows(t *testing.T) {
	b := setup(t)
	pipe := b.put(patient())
	id := b.submit(within(time.Hour, 0))[0].ID
	l := b.lease(pipe, 1)[0]
	b.lapse(id, "start_by")
	other, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), b.at(0, `DELETE FROM {lifetimes} WHERE type = {number}`))
	require.NoError(t, err)
	n, err := b.ExpireTasks(t.Context(), pipe)
	require.NoError(t, err)
	require.Zero(t, n)
	require.NoError(t, other.Commit(t.Context()))
	require.Zero(t, b.lifetimes())
	require.False(t, b.settle(pipe, l, doneWith(`2`)).Stale)
}

// A change that was answered before the job locks the task's token row counts: the job reads the
// options after it.
func TestExpireReadsAfterItsLocks(t *testing.T) {
	b := setupFanOut(t)
	spec := b.known().TaskType
	spec.EndBy = asyncflow.DeadlineAfter(time.Hour)
	b.put(spec)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	b.lapse(id, "end_by")
	other, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), b.at(0, `SELECT FROM {fan_outs} FOR UPDATE`))
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() {
		_, err := b.ExpireTasks(t.Context(), b.known())
		done <- err
	}()
	b.blocked(1)
	b.exec(b.at(id.Position(), `UPDATE {task} SET options = jsonb_set(options::jsonb,
		'{lifetime,end_by}', to_jsonb($2::text))::json WHERE type = {number} AND id = $1`),
		id.Number, b.Clock.Now().Add(2*time.Hour).UTC().Format(time.RFC3339Nano))
	require.NoError(t, other.Rollback(t.Context()))
	require.NoError(t, receive(t, done))
	b.expireTasks()
	require.Equal(t, asyncflow.StatusWaiting, b.task(id).Status)
	require.Equal(t, 1, b.lifetimes())
	b.checkTokens("pipe")
}

// A task that was leased when its start_by came, and is given back after that, doesn't stay to the
// end that its lease would reach.
func TestExpireGivenBackLate(t *testing.T) {
	b := setup(t)
	pipe := b.put(patient())
	id := b.submit(within(time.Hour, 0))[0].ID
	l := b.lease(pipe, 1)[0]
	b.exec(b.at(0, `UPDATE {lease} SET until = until + interval '1 hour' WHERE type = {number}`))
	b.lapse(id, "start_by")
	b.expireTasks()
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased})
	var next time.Time
	require.NoError(t, b.db.QueryRow(t.Context(),
		b.at(0, `SELECT expires_at FROM {lifetimes} WHERE type = {number}`)).Scan(&next))
	require.False(t, next.After(b.Clock.Now().Add(10*time.Second)))
	b.lapse(id, "start_by")
	b.expireTasks()
	b.expired(id, "begun")
}
