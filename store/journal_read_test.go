package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// longPath makes a task of a type that branches, with a long journal: it was in its first stage
// longRows times, with no output but the first, and waits for a claimer of its second one.
func longPath(b *bundle) asyncflow.TaskID {
	b.t.Helper()
	spec := twoStages()
	spec.Stages[0].Next = []string{"second", asyncflow.NextFinish}
	spec.Stages[1].Mode = asyncflow.ModeClaim
	spec.Stages[1].Next = []string{"first", asyncflow.NextFinish}
	b.put(spec.WithDefaults())
	id := b.submit(newTask(`"submitted"`))[0].ID
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0], to("second", `"of first"`))
	b.exec(b.at(1, `INSERT INTO {journal} (type, id, seq, at, stage, attempt, outcome)
		SELECT type, id, s, at, 'first', 1, 'done' FROM {journal}, generate_series(2, 600) s
		WHERE seq = 1`))
	b.exec(`UPDATE tenant_acme.wait SET seq = 601`)
	return id
}

// changeRead changes rows of the journal that a node already read, so that it would find other
// options, outputs and stages.
func (b *bundle) changeRead() {
	b.t.Helper()
	b.exec(b.at(1, `UPDATE {journal} SET output = '"read again"', stage = 'second',
		options = '{"priority": [60]}' WHERE seq BETWEEN 2 AND 598`))
}

// claimOne claims the only task of the second stage.
func (b *bundle) claimOne() asyncflow.Lease {
	b.t.Helper()
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	_, err := b.LeaseForClaims(b.t.Context(), b.known(), "second", []*store.ClaimAsk{ask}, 1, 1<<20)
	require.NoError(b.t, err)
	require.Len(b.t, ask.Leases, 1)
	return ask.Leases[0]
}

// read returns a task as it is read by itself, once it is the same as Watch returns.
func (b *bundle) read(id asyncflow.TaskID) store.Task {
	b.t.Helper()
	task := b.task(id)
	watched, _, _, err := b.Watch(b.t.Context(), tenant, id, store.AttemptPage{Limit: 1})
	require.NoError(b.t, err)
	require.Equal(b.t, task.Path, watched.Path)
	require.Equal(b.t, task.Options, watched.Options)
	require.Equal(b.t, task.Result, watched.Result)
	return task
}

// For a reader of a task each row of a long journal is read once.
func TestALongJournalIsReadOnceForReads(t *testing.T) {
	b := setup(t)
	id := longPath(b)
	before := b.read(id)
	require.Equal(t, 601, before.Steps)
	require.Len(t, before.Path, 100)
	require.Equal(t, store.Visit{Stage: "first", Visit: 600, Attempts: 1}, before.Path[98])
	require.Equal(t, store.Visit{Stage: "second", Visit: 1}, before.Path[99])
	b.changeRead()
	require.Equal(t, before, b.read(id))

	l := b.claimOne()
	b.settle(b.known(), l, to("first", `"of second"`))
	task := b.read(id)
	require.Equal(t, 602, task.Steps)
	require.Equal(t, []store.Visit{{Stage: "second", Visit: 1, Attempts: 1},
		{Stage: "first", Visit: 601}}, task.Path[98:])
	b.settle(b.known(), b.leaseAll(b.known(), 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Finish: true})
	for range 2 {
		task = b.read(id)
		require.Equal(t, asyncflow.StatusSucceeded, task.Status)
		require.Equal(t, `"of second"`, string(task.Result))
		require.Equal(t, 602, task.Steps)
		b.exec(b.at(1, `UPDATE {journal} SET output = NULL WHERE seq BETWEEN 2 AND 598`))
	}
}

// After a failover a database may be back at an earlier time, and hold other rows of the same
// numbers.
func TestReadsOfALongJournalThatHasGoneBack(t *testing.T) {
	b := setup(t)
	id := longPath(b)
	require.Equal(t, 601, b.read(id).Steps)
	b.changeRead()
	b.exec(b.at(1, `UPDATE {journal} SET at = at + interval '1 second' WHERE seq > 590`))
	task := b.read(id)
	require.Equal(t, 601, task.Steps)
	require.Equal(t, store.Visit{Stage: "second", Visit: 598}, task.Path[99])
	require.Equal(t, asyncflow.Priority{60}, task.Options.Priority)
}

// A database that is back at an earlier time may hold fewer rows.
func TestReadsOfALongJournalThatIsShorter(t *testing.T) {
	b := setup(t)
	id := longPath(b)
	require.Equal(t, 601, b.read(id).Steps)
	b.exec(b.at(1, `DELETE FROM {journal} WHERE seq > 550`))
	b.exec(`UPDATE tenant_acme.wait SET seq = 551`)
	require.Equal(t, 551, b.read(id).Steps)
}

// A claim reads each row of a long journal once, too.
func TestALongJournalIsReadOnceForClaims(t *testing.T) {
	b := setup(t)
	longPath(b)
	l := b.claimOne()
	require.Equal(t, `"of first"`, string(l.Context))
	b.changeRead()
	b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: "again"})
	b.exec(b.at(1, `UPDATE {wait} SET order_time = now() - interval '1 s'`))
	l = b.claimOne()
	require.Equal(t, `"of first"`, string(l.Context))
	require.Empty(t, l.Options)
}
