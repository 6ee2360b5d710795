package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// A heartbeat that waited doesn't move the end of the lease back that a later one moved on,
// with or without a checkpoint. One that knew the end may move it back: the type may allow less by
// now.
func TestALateHeartbeatMovesNoEndBack(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.submit(newTask(`1`))
	l := b.leaseOne(b.known())
	now := b.Clock.Now().Truncate(time.Microsecond)
	for _, c := range []store.Checkpoint{{}, b.checkpoint(`1`)} {
		beat := func(until time.Duration) time.Duration {
			stands := make(chan bool, 1)
			b.Extend(tenant, l, now.Add(until), c, store.Seen{}, func(ok bool, err error) {
				stands <- ok && err == nil
			})
			require.True(t, receive(t, stands))
			var end time.Time
			require.NoError(t, b.db.QueryRow(t.Context(),
				`SELECT until FROM tenant_acme.lease`).Scan(&end))
			return end.Sub(now)
		}
		require.Equal(t, 3*time.Hour, beat(3*time.Hour))
		require.Equal(t, 3*time.Hour, beat(2*time.Hour), "it knew an earlier end")
		require.Equal(t, 4*time.Hour, beat(4*time.Hour))
		l.Until = now.Add(4 * time.Hour)
		require.Equal(t, time.Hour, beat(time.Hour), "the end that it knew")
		l.Until = now.Add(time.Hour)
	}
}

// A checkpoint that arrived before another one of the same attempt doesn't replace it, however long
// it waited: with a heartbeat, a report of progress or in one transaction with it. The lease is
// extended all the same.
func TestALateCheckpointReplacesNone(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseOne(b.known())
	early := b.checkpoint(`"early"`)
	early.Arrived = early.Arrived.Add(-time.Millisecond)
	require.True(t, b.keep(l, `"late"`))
	now := b.Clock.Now()
	stands := make(chan bool, 2)
	beat := func(c store.Checkpoint, until time.Duration) {
		b.Extend(tenant, l, now.Add(until), c, store.Seen{}, func(ok bool, err error) {
			stands <- ok && err == nil
		})
	}
	beat(early, time.Hour)
	require.True(t, receive(t, stands))
	ok, err := b.SetProgress(t.Context(), b.known(), id, l.Seq,
		store.Progress{Percent: 5, Checkpoint: early})
	require.NoError(t, err)
	require.True(t, ok)
	kept := func() string {
		t.Helper()
		var document string
		require.NoError(t, b.db.QueryRow(t.Context(),
			`SELECT document FROM tenant_acme.checkpoints`).Scan(&document))
		return document
	}
	require.Equal(t, `"late"`, kept())

	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM tenant_acme.lease FOR UPDATE`)
	require.NoError(t, err)
	first, second := b.checkpoint(`"first"`), b.checkpoint(`"second"`)
	second.Arrived = first.Arrived.Add(time.Millisecond)
	beat(second, time.Hour)
	beat(first, 2*time.Hour)
	require.NoError(t, tx.Rollback(t.Context()))
	require.True(t, receive(t, stands))
	require.True(t, receive(t, stands))
	require.Equal(t, `"second"`, kept())

	b.loseAll(b.known(), 1)
	l = b.due(id)
	beat(early, time.Hour)
	require.True(t, receive(t, stands))
	require.Equal(t, `"early"`, kept(), "an attempt writes over what an earlier one has left")
}
