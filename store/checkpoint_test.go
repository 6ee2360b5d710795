package store_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// checkpoint is one that a node gets now.
func (b *bundle) checkpoint(document string) store.Checkpoint {
	if document == "" {
		return store.Checkpoint{}
	}
	return store.Checkpoint{Document: json.RawMessage(document), Arrived: b.Clock.Now()}
}

// keep writes a checkpoint with a heartbeat, and reports whether the lease stands.
func (b *bundle) keep(l asyncflow.Lease, checkpoint string) bool {
	b.t.Helper()
	extended := make(chan bool, 1)
	b.Extend(tenant, l, b.Clock.Now().Add(time.Hour), b.checkpoint(checkpoint),
		store.Seen{}, func(stands bool, err error) { extended <- stands && err == nil })
	return receive(b.t, extended)
}

// noCheckpoint checks that no checkpoint of a task counts.
func (b *bundle) noCheckpoint(id asyncflow.TaskID) {
	b.t.Helper()
	_, err := b.Checkpoint(b.t.Context(), tenant, id)
	require.Equal(b.t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "%v", err)
}

// A checkpoint comes with the next attempt of its stage, whatever ended the one before, until the
// stage is done.
func TestCheckpoint(t *testing.T) { eachSet(t, testCheckpoint) }

func testCheckpoint(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Retry = asyncflow.RetryPolicy{MaxAttempts: 9}
	b.put(spec)
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseOne(b.known())
	require.Nil(t, l.Checkpoint)
	b.noCheckpoint(id)
	require.True(t, b.keep(l, `{"page":1}`))
	old := l
	b.loseAll(b.known(), 1)
	l = b.due(id)
	require.Equal(t, `{"page":1}`, string(l.Checkpoint), "after a lost attempt")
	require.Equal(t, `1`, string(l.Context))
	require.False(t, b.keep(old, `{"page":0}`), "an attempt that is over writes nothing")
	stands, err := b.SetProgress(t.Context(), b.known(), id, old.Seq,
		store.Progress{Percent: 5, Checkpoint: b.checkpoint(`{"page":0}`)})
	require.NoError(t, err)
	require.False(t, stands)
	stands, err = b.SetProgress(t.Context(), b.known(), id, l.Seq,
		store.Progress{Percent: 5, Checkpoint: b.checkpoint(`{"page":2}`)})
	require.NoError(t, err)
	require.True(t, stands)
	stands, err = b.SetProgress(t.Context(), b.known(), id, l.Seq, store.Progress{Percent: 6})
	require.NoError(t, err)
	require.True(t, stands)
	b.snooze(l, time.Hour)
	l = b.due(id)
	require.Equal(t, `{"page":2}`, string(l.Checkpoint), "after a snooze")
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
	l = b.due(id)
	require.Equal(t, `{"page":2}`, string(l.Checkpoint), "after two attempts")
	shown, err := b.Checkpoint(t.Context(), tenant, id)
	require.NoError(t, err)
	require.Equal(t, []string{"first", `{"page":2}`},
		[]string{shown.Stage, string(shown.Document)})
	require.False(t, shown.WrittenAt.IsZero())
	b.settle(b.known(), l, goodEnd)
	b.noCheckpoint(id)

	l = b.leaseOne(b.known())
	require.Equal(t, "second", l.Stage)
	require.Nil(t, l.Checkpoint)
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed})
	l = b.due(id)
	require.Nil(t, l.Checkpoint, "it is of the first stage")
	require.True(t, b.keep(l, `"half"`))
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	for _, c := range []struct {
		how        store.Redrive
		checkpoint string
	}{
		{store.Redrive{}, `"half"`},
		{store.Redrive{Context: json.RawMessage(`7`)}, `"half"`},
		{store.Redrive{Fresh: true}, ``},
	} {
		_, err := b.Redrive(t.Context(), tenant, id, c.how)
		require.NoError(t, err)
		l = b.leaseOne(b.known())
		require.Equal(t, c.checkpoint, string(l.Checkpoint), c.how)
		b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	}

	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{Stage: "first"})
	require.NoError(t, err)
	l = b.leaseOne(b.known())
	require.Nil(t, l.Checkpoint, "the first stage was done since")
	require.True(t, b.keep(l, `"again"`))
	b.settle(b.known(), l, goodEnd)
	require.Nil(t, b.leaseOne(b.known()).Checkpoint)
}

// Checkpoints that no longer count are deleted: of a stage that is done, of a task in a dropped
// roll and of a type that was deleted. The remaining ones are checked again, ever more rarely.
func TestForgetCheckpoints(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.submit(newTask(`1`), newTask(`2`))
	leases := b.lease(b.known(), 2)
	for _, l := range leases {
		require.True(t, b.keep(l, `"x"`))
	}
	left := func() int {
		return b.count(`SELECT count(*) FROM tenant_acme.checkpoints`)
	}
	forget := func(checked int) {
		t.Helper()
		due, err := b.DryRunForgetCheckpoints(t.Context(), tenant)
		require.NoError(t, err)
		require.Equal(t, checked, due)
		n, err := b.ForgetCheckpoints(t.Context(), tenant)
		require.NoError(t, err)
		require.Equal(t, checked, n)
	}
	age := func(by string) {
		b.exec(`UPDATE tenant_acme.checkpoints SET check_at = check_at - interval '` + by + `',
			written_at = written_at - interval '` + by + `'`)
	}
	b.settle(b.known(), leases[0], goodEnd)
	forget(0)
	first, err := b.FirstForget(t.Context(), tenant, 0)
	require.NoError(t, err)
	require.WithinDuration(t, b.Clock.Now().Add(10*time.Minute), first, time.Minute)
	age("11 min")
	forget(2)
	require.Equal(t, 1, left())
	age("12 min")
	forget(1)
	require.Equal(t, 1, left(), "its stage goes on")
	age("12 min")
	forget(0)
	age("12 min")
	forget(1)
	b.settle(b.known(), leases[1], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
	age("3 h")
	forget(1)
	require.Equal(t, 1, left(), "for a redrive")

	b.exec(`UPDATE tenant_acme.checkpoints SET id = id + (1::bigint << 40)`) // in no roll
	age("9 h")
	forget(1)
	require.Zero(t, left())
	b.exec(`INSERT INTO tenant_acme.checkpoints VALUES (999, 1, 1, 'first', now(),
		now() - interval '1 min', '1')`)
	forget(1)
	require.Zero(t, left())
}

// A heartbeat without a checkpoint, written together with one with a checkpoint, doesn't lose it.
func TestCheckpointBesideHeartbeats(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseOne(b.known())
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.lease FOR UPDATE`)
	require.NoError(t, err)
	stands := make(chan bool, 9)
	for i := range cap(stands) {
		var checkpoint store.Checkpoint
		if i == 4 {
			checkpoint = b.checkpoint(`"four"`)
		}
		until := b.Clock.Now().Add(time.Hour + time.Duration(i)*time.Second)
		b.Extend(tenant, l, until, checkpoint, store.Seen{}, func(ok bool, err error) {
			stands <- ok && err == nil
		})
	}
	require.NoError(t, tx.Rollback(t.Context()))
	for range cap(stands) {
		require.True(t, receive(t, stands))
	}
	b.loseAll(b.known(), 1)
	require.Equal(t, `"four"`, string(b.due(id).Checkpoint))
}

// A transaction writes about as many bytes of checkpoints as of contexts, so that the other writes
// of its batch don't wait for more.
func TestCheckpointsOfABatchAreBounded(t *testing.T) {
	const size, tasks = 200 << 10, 60
	b := setup(t)
	b.put(twoStages())
	all := make([]asyncflow.NewTask, tasks)
	for i := range all {
		all[i] = newTask(`1`)
	}
	b.submit(all...)
	stands := make(chan bool, tasks)
	for _, l := range b.lease(b.known(), tasks) {
		b.Extend(tenant, l, b.Clock.Now().Add(time.Hour),
			b.checkpoint(`"`+strings.Repeat("x", size)+`"`), store.Seen{},
			func(ok bool, err error) { stands <- ok && err == nil })
	}
	for range tasks {
		require.True(t, receive(t, stands))
	}
	most := b.count(`SELECT max(n) FROM (SELECT sum(length(document)) AS n
		FROM tenant_acme.checkpoints GROUP BY xmin::text) q`)
	require.LessOrEqual(t, most, 1<<20+size)
}
