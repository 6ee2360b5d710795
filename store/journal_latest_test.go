package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// longRows is the length from which on a node remembers what it read of a journal.
const longRows = 600

// longLoop makes a task with a long journal: its first stage is done, and its second one was given
// back many times. It returns a lease of it.
func longLoop(b *bundle) (id asyncflow.TaskID, l asyncflow.Lease) {
	b.t.Helper()
	spec := lookBack()
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "third"})
	spec.Stages[1].Deliver = &asyncflow.Deliver{Outputs: []string{"first", "third"}}
	b.put(spec.WithDefaults())
	id = b.submit(newTask(`0`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`"of first"`))
	b.exec(b.at(1, `INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome)
		SELECT type, id, s, at, 'second', 1, 'released' FROM {journal}, generate_series(2, 599) s
		WHERE seq = 1`))
	b.exec(b.at(1, `UPDATE {ready} SET seq = 600`))
	l = b.leaseAll(b.known(), 1)[0]
	require.Equal(b.t, []any{longRows, `"of first"`}, []any{l.Seq, string(l.Context)})
	return id, l
}

// giveBack ends an attempt so that the task is leased again at once.
func (b *bundle) giveBack(l asyncflow.Lease) asyncflow.Lease {
	b.t.Helper()
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "again"})
	return b.leaseAll(b.known(), 1)[0]
}

// A row of a long journal is read once: whether options, a context or the output of a stage are in
// it.
func TestALongJournalIsReadOnce(t *testing.T) {
	b := setup(t)
	_, l := longLoop(b)
	want := map[string]string{"first": `"of first"`, "third": "null"}
	require.Equal(t, want, b.given(l))
	ids := []asyncflow.TaskID{l.ID}
	_, err := b.LeasesOf(t.Context(), b.known(), ids)
	require.NoError(t, err)

	b.exec(b.at(1, `UPDATE {journal} SET output = '"read again"', outcome = 'done',
		stage = CASE WHEN seq % 2 = 0 THEN 'first' ELSE 'third' END,
		options = '{"priority": [60]}' WHERE seq BETWEEN 2 AND 598`))
	for range 2 {
		l = b.giveBack(l)
		require.Equal(t, `"of first"`, string(l.Context))
		require.Empty(t, l.Options)
		require.Equal(t, want, b.given(l))
		leases, err := b.LeasesOf(t.Context(), b.known(), ids)
		require.NoError(t, err)
		require.Empty(t, leases[l.ID].Options)
	}
}

// What comes after the rows that a node remembers counts: a change, outputs, and rows that another
// node wrote.
func TestALongJournalGoesOn(t *testing.T) {
	b := setup(t)
	id, l := longLoop(b)
	require.Equal(t, "null", b.given(l)["third"])
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeSnoozed,
		FirstSent: b.Clock.Now(), RetryAfter: time.Hour})
	urgent := asyncflow.Priority{60}
	_, err := b.Change(t.Context(), tenant, id, asyncflow.Patch{Priority: urgent})
	require.NoError(t, err)
	l = b.due(id)
	require.Equal(t, urgent, l.Options.Priority)
	l = b.giveBack(l)
	require.Equal(t, urgent, l.Options.Priority, "it is found again")
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "again"})
	b.exec(b.at(1, `UPDATE {journal} SET stage = 'third', outcome = 'done', output = '"of third"'
		WHERE seq = (SELECT max(seq) FROM {journal})`))
	l = b.leaseAll(b.known(), 1)[0]
	for range 2 {
		require.Equal(t, `"of third"`, string(l.Context))
		require.Equal(t, map[string]string{"first": `"of first"`, "third": `"of third"`}, b.given(l))
		l = b.giveBack(l)
	}
}

// After a failover a database may be back at an earlier time, and hold other rows of the same
// numbers.
func TestALongJournalThatHasGoneBack(t *testing.T) {
	b := setup(t)
	_, l := longLoop(b)
	require.Equal(t, "null", b.given(l)["third"])
	b.exec(b.at(1, `UPDATE {journal} SET at = at + interval '1 second', stage = 'third',
		outcome = 'done', output = '"of third"' WHERE seq > 590`))
	require.Equal(t, `"of third"`, b.given(l)["third"])
	require.Equal(t, `"of third"`, string(b.giveBack(l).Context))
}

// The children of a task with a long journal are made of what a node read before.
func TestChildrenOfATaskWithALongJournal(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.SetChunks(2, 2, 2)
	spec := twoStages()
	spec.Stages[1].FanOut = &asyncflow.FanOut{Items: "/items"}
	b.put(spec.WithDefaults())
	id := b.submit(newTask(`0`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], output(`{"items":[1,2,3]}`))
	b.exec(b.at(1, `INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome)
		SELECT type, id, s, at, 'second', 1, 'released' FROM {journal}, generate_series(2, 599) s
		WHERE seq = 1`))
	b.exec(b.at(1, `UPDATE {ready} SET seq = 600`))
	l := b.leaseAll(b.known(), 1)[0]
	b.exec(b.at(1, `UPDATE {journal} SET output = '"read again"' WHERE seq BETWEEN 2 AND 598`))
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: *spec.Stages[1].FanOut, Count: 3}})
	b.followUp()
	children, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id, Limit: 9})
	require.NoError(t, err)
	require.Len(t, children, 3)
	for i, child := range children {
		require.Equal(t, fmt.Sprint(3-i), string(b.task(child.ID).Context))
	}
}
