package store_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// dying is a node that dies when it gets something to deliver. It has room for a number of
// new tasks of each batch, and keeps that of a number that go on.
type dying struct {
	room     int
	keeps    int
	mu       sync.Mutex
	reserved int
	got      []asyncflow.Lease
	waits    func() // while it is asked for room
}

func (d *dying) Reserve(_ *store.Type, n int, _ time.Time) int {
	if d.waits != nil {
		d.waits()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n = min(n, d.room)
	d.reserved += n
	return n
}

func (*dying) MayLinger(int) bool { return true }

func (*dying) Quiesce(context.Context, store.TypeKey) {}

func (*dying) Await(*store.Type, func() int, time.Time) {}

func (d *dying) Keep(_ *store.Type, n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n = min(n, d.keeps)
	d.reserved += n
	return n
}

func (d *dying) Receive(_ *store.Type, room int, leases []asyncflow.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reserved -= room
	d.got = append(d.got, leases...)
}

func (d *dying) Resume(t *store.Type, room int, leases []asyncflow.Lease) { d.Receive(t, room, leases) }

// Tasks that were handed to a node which died before it began are leases that run out:
// each is tried again, the lost attempt is counted, and the others wait in line meanwhile.
func TestCrashAfterAHandoff(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	node := &dying{room: 3}
	b.HandTo(node)
	tasks := make([]asyncflow.NewTask, 5)
	for i := range tasks {
		tasks[i] = newTask(`1`)
	}
	all := b.submit(tasks...)
	require.Len(t, node.got, 3)
	assert.Zero(t, node.reserved)
	b.checkTokens("pipe")
	waiting := b.leaseAll(pipe, 2)
	for _, l := range waiting {
		assert.Equal(t, 1, l.Seq)
	}
	b.HandTo(nil)
	require.Eventually(t, func() bool { // when the leases have run out
		n, err := b.Rescue(t.Context(), pipe)
		require.NoError(t, err)
		return n > 0
	}, patience, 50*time.Millisecond)
	require.Eventually(t, func() bool { // some of the others' may have run out too
		_, err := b.Rescue(t.Context(), pipe)
		require.NoError(t, err)
		attempts, err := b.Attempts(t.Context(), tenant, all[0].ID)
		require.NoError(t, err)
		return len(attempts) == 1 && attempts[0].Outcome == asyncflow.OutcomeLost
	}, patience, 50*time.Millisecond)
	b.checkTokens("pipe")
}

// A batch that is submitted again, as its commit is unknown, hands over what it inserts and
// nothing else.
func TestHandoffAfterALostCommit(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	node := &dying{room: 10}
	b.HandTo(node)
	require.NoError(t, b.SubmitAgain(t.Context(), tenant, [2]asyncflow.NewTask{newTask(`1`), newTask(`2`)}))
	require.Len(t, node.got, 2)
	assert.NotEqual(t, node.got[0].ID, node.got[1].ID)
	assert.Zero(t, node.reserved)
	b.checkTokens("pipe")
}

// What was due when it was asked is due, whatever becomes of the clock.
func TestHandoffWhileTheClockGoesBack(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	node := &dying{room: 2, waits: func() { b.Clock.Shift(-time.Minute) }}
	b.HandTo(node)
	b.submit(newTask(`1`), newTask(`2`), newTask(`3`))
	require.Len(t, node.got, 2)
	b.checkTokens("pipe")
}

// servesBoth puts a type of two stages with an endpoint for each.
func (b *bundle) servesBoth() *store.Type {
	b.t.Helper()
	b.serving(twoStages())
	_, err := b.CreateEndpoint(b.t.Context(), tenant, asyncflow.Endpoint{ID: "0190a6f0-0000-7000-8000-000000000002", Type: "pipe", Stage: "second", URL: "https://w", Weight: 1})
	require.NoError(b.t, err)
	pipe, err := b.Catalog.Type(tenant, "pipe")
	require.NoError(b.t, err)
	return pipe
}

// settleTogether settles leases in one batch, with outcomes that all are of the same time.
func (b *bundle) settleTogether(pipe *store.Type, leases []asyncflow.Lease, outcomes []asyncflow.Outcome) (errs []error) {
	now := b.Clock.Now()
	settlements := make([]asyncflow.Settlement, len(leases))
	for i, l := range leases {
		settlements[i] = asyncflow.Settlement{Lease: l, Outcome: outcomes[i], Verdict: asyncflow.Decide(pipe.TaskType, l, outcomes[i], now)}
	}
	results := make(chan error, len(leases))
	b.SettleAll(tenant, settlements, func(_ *asyncflow.Settlement, r store.Settled) { results <- r.Err })
	for range leases {
		errs = append(errs, <-results)
	}
	return errs
}

// Tasks that have ended a stage get the lease of the next one where that of the last one ends:
// the first in order, as many as there is room for, if what they go on with is at hand. The
// others go in line. If the node dies, the leases run out.
func TestHandoffToTheNextStage(t *testing.T) {
	b := setup(t)
	pipe := b.servesBoth()
	tasks := []asyncflow.NewTask{newTask(`1`), newTask(`2`), newTask(`3`), newTask(`4`), newTask(`5`)}
	tasks[2].Options.Priority = asyncflow.Priority{0, 60} // in the second stage it is first
	b.submit(tasks...)
	leases := b.lease(pipe, 5)
	require.Len(t, leases, 5)
	node := &dying{keeps: 2}
	b.HandTo(node)
	ended := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}
	outcomes := []asyncflow.Outcome{ended, ended, ended, ended, {Kind: asyncflow.OutcomeRejected}}
	outcomes[0].Output = json.RawMessage(`{"made":1}`)
	leases[3].Context = nil // it would have to be read
	for _, err := range b.settleTogether(pipe, leases, outcomes) {
		require.NoError(t, err)
	}
	require.Len(t, node.got, 2)
	assert.Zero(t, node.reserved)
	for i, want := range []struct {
		of      int
		context string
	}{{2, `3`}, {0, `{"made":1}`}} {
		l := node.got[i]
		assert.Equal(t, []any{leases[want.of].ID, "second", 1, 2, want.context}, []any{l.ID, l.Stage, l.Attempt, l.Seq, string(l.Context)})
		assert.Equal(t, tasks[want.of].Options, l.Options)
	}
	b.checkTokens("pipe")
	for i, l := range b.lease(pipe, 5) {
		assert.Equal(t, []any{leases[[]int{1, 3}[i]].ID, "second", 2, []string{`2`, `4`}[i]}, []any{l.ID, l.Stage, l.Seq, string(l.Context)})
	}

	b.HandTo(nil)
	eventually(t, "they are rescued when their leases have run out", func() bool {
		_, err := b.Rescue(t.Context(), pipe)
		require.NoError(t, err)
		attempts, err := b.Attempts(t.Context(), tenant, leases[0].ID)
		require.NoError(t, err)
		return len(attempts) == 2 && attempts[1].Outcome == asyncflow.OutcomeLost && attempts[1].Stage == "second"
	})
	b.checkTokens("pipe")
}

// A task whose worker reports may have no slot that it could keep: it goes in line.
func TestReportedTasksGoInLine(t *testing.T) {
	b := setup(t)
	pipe := b.servesBoth()
	b.submit(newTask(`1`))
	node := &dying{keeps: 1}
	b.HandTo(node)
	require.NoError(t, b.settle(pipe, b.lease(pipe, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`2`)}).Err)
	assert.Empty(t, node.got)
	again := b.lease(pipe, 1)
	require.Len(t, again, 1)
	assert.Equal(t, []any{"second", 2, `2`}, []any{again[0].Stage, again[0].Seq, string(again[0].Context)})
}

// What couldn't be written isn't handed over.
func TestHandoffToTheNextStageThatFails(t *testing.T) {
	b := setup(t)
	pipe := b.servesBoth()
	b.submit(newTask(`1`), newTask(`2`))
	leases := b.lease(pipe, 2)
	node := &dying{keeps: 2}
	b.HandTo(node)
	_, err := b.db.Exec(t.Context(), `ALTER TABLE tenant_acme.journal_pipe_1 ADD CONSTRAINT shut CHECK (false) NOT VALID`)
	require.NoError(t, err)
	ended := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Status: 200}
	for _, err := range b.settleTogether(pipe, leases, []asyncflow.Outcome{ended, ended}) {
		require.Error(t, err)
	}
	assert.Empty(t, node.got)
	assert.Zero(t, node.reserved)
	b.checkTokens("pipe")
}
