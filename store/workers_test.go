package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// workers reports the workers of a type since a time.
func (b *bundle) workers(name string, since time.Duration) store.WorkerReport {
	b.t.Helper()
	report, err := b.Workers(b.t.Context(), tenant, store.WorkerFilter{Type: name,
		Since: b.Clock.Now().Add(-since), Limit: store.MaxWorkers})
	require.NoError(b.t, err)
	return report
}

// byName returns the workers of a report by their names.
func byName(r store.WorkerReport) map[string]store.Worker {
	all := map[string]store.Worker{}
	for _, w := range r.Workers {
		all[w.Name] = w
	}
	return all
}

// A report names who ended attempts and who runs tasks, with what they gave as their names.
func TestWorkers(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		pipe := b.put(twoStages())
		other := twoStages()
		other.Name = "tube"
		b.put(other)
		empty := b.workers("", time.Minute)
		assert.Equal(t, []any{0, true}, []any{empty.Count, empty.Complete})
		const url = "https://example.com/x"
		b.submit(newTask(`1`), newTask(`2`), newTask(`3`), newTask(`4`))
		leases := b.leaseAll(pipe, 4)
		b.settle(pipe, leases[0], asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Endpoint: url,
			Worker: "quick", Duration: time.Millisecond})
		b.settle(pipe, leases[1], asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Endpoint: url,
			Worker: "quick", Duration: 3 * time.Millisecond, Error: "no"})
		lost := leases[2]
		lost.Worker = "gone"
		b.settle(pipe, lost, asyncflow.Outcome{Kind: asyncflow.OutcomeLost, Endpoint: url})
		before := b.Clock.Now()
		extended := make(chan bool, 1)
		b.Extend(tenant, leases[3], before.Add(time.Hour), store.Checkpoint{},
			store.Seen{Beat: before, Worker: "busy"},
			func(stands bool, err error) { extended <- stands && err == nil })
		require.True(t, receive(t, extended))
		report := b.workers("", time.Hour)
		assert.Equal(t, []any{3, true}, []any{report.Attempts, report.Complete})
		all := byName(report)
		quick, gone, busy := all["quick"], all["gone"], all["busy"]
		assert.Equal(t, store.WorkerKey{Type: "pipe", Stage: "first", Name: "quick", URL: url},
			quick.WorkerKey)
		assert.Equal(t, []any{2, 1, 0, time.Millisecond, 3 * time.Millisecond},
			[]any{quick.Attempts, quick.Failures, quick.Lost, quick.P50.Round(time.Microsecond),
				quick.P95.Round(time.Microsecond)})
		assert.WithinRange(t, quick.Seen, before.Add(-patience), b.Clock.Now())
		assert.Equal(t, []any{store.WorkerGone, 1, 1, 1, true},
			[]any{gone.State, gone.Attempts, gone.Failures, gone.Lost, gone.Seen.IsZero()})
		assert.Equal(t, []any{store.WorkerWell, 0, 1},
			[]any{busy.State, busy.Attempts, busy.Running})
		assert.WithinDuration(t, before, busy.Seen, time.Millisecond)
		assert.WithinDuration(t, leases[3].LeasedAt, busy.Oldest, time.Millisecond)
		assert.Equal(t, "gone", report.Workers[0].Name, "the worst first")
		assert.Empty(t, b.workers("tube", time.Hour).Workers)
	})
}

// journaled is a worker with attempts that a test writes into a journal.
type journaled struct {
	name     string
	attempts int
	from, to time.Duration // before now, evenly
	seconds  float64
	outcome  string
}

// journal writes attempts into the journal of the type pipe, in the order of their times.
func (b *bundle) journal(all ...journaled) {
	b.t.Helper()
	union := ""
	for i, j := range all {
		if i > 0 {
			union += " UNION ALL "
		}
		union += fmt.Sprintf(`SELECT now() - interval '%f s' + n * interval '%f s', '%s', %f,
			E'https://example.com/x\x1enode\x1f%s' FROM generate_series(1, %d) n`,
			j.from.Seconds(), (j.from-j.to).Seconds()/float64(j.attempts), j.outcome, j.seconds,
			j.name, j.attempts)
	}
	_, err := b.db.Exec(b.t.Context(), b.at(1, `INSERT INTO {journal}
		(type, id, seq, at, stage, attempt, outcome, duration, endpoint)
		SELECT {number}, 1000000 + row_number() OVER (ORDER BY at), 1, at, 'first', 1, outcome, took,
		  place FROM (`+union+`) u (at, outcome, took, place) ORDER BY at`))
	require.NoError(b.t, err)
}

// The states of workers: a slow one, a failing one, and one without which its stage goes on. A
// worker with little to do is well.
func TestWorkerStates(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		b.put(twoStages())
		const minute = time.Minute
		b.journal(
			journaled{"even", 400, 8 * minute, 0, 0.1, "done"},
			journaled{"odd", 400, 8 * minute, 0, 0.11, "done"},
			journaled{"rare", 20, 8 * minute, 0, 0.12, "done"},
			journaled{"slow", 100, 8 * minute, 0, 0.9, "done"},
			journaled{"bad", 40, 8 * minute, 0, 0.1, "failed"},
			journaled{"dead", 100, 8 * minute, 6 * minute, 0.1, "done"},
			journaled{"new", 3, minute, 0, 9, "done"},
			journaled{"old", 50, 30 * minute, 20 * minute, 0.1, "done"})
		report := b.workers("pipe", 10*minute)
		states := map[string]store.WorkerState{}
		for name, w := range byName(report) {
			states[name] = w.State
		}
		assert.Equal(t, map[string]store.WorkerState{"even": store.WorkerWell,
			"odd": store.WorkerWell, "rare": store.WorkerWell, "slow": store.WorkerSlow,
			"bad": store.WorkerFailing, "dead": store.WorkerGone, "new": store.WorkerWell}, states)
		var order []string
		for _, w := range report.Workers[:3] {
			order = append(order, w.Name)
		}
		assert.Equal(t, []string{"dead", "bad", "slow"}, order)
		assert.True(t, report.Complete)
		assert.Equal(t, 1063, report.Attempts)
		assert.Equal(t, 40, byName(report)["bad"].Failures)
		limited, err := b.Workers(t.Context(), tenant, store.WorkerFilter{Type: "pipe",
			Since: b.Clock.Now().Add(-10 * minute), Limit: 2})
		require.NoError(t, err)
		assert.Equal(t, []int{2, 7}, []int{len(limited.Workers), limited.Count})
	})
}

// Of many attempts a sample is read, which still contains some of a worker that is gone for
// minutes.
func TestWorkersAmongManyAttempts(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	const minute = time.Minute
	b.journal(journaled{"even", 60_000, 9 * minute, 0, 0.1, "done"},
		journaled{"odd", 60_000, 9 * minute, 0, 0.1, "done"},
		journaled{"dead", 1000, 9 * minute, 6 * minute, 0.1, "done"})
	began := time.Now()
	report := b.workers("", 10*minute)
	t.Logf("%d attempts of 121,000 were read in %v", report.Attempts, time.Since(began))
	assert.False(t, report.Complete)
	assert.Less(t, report.Attempts, 50_000)
	all := byName(report)
	assert.Equal(t, store.WorkerGone, all["dead"].State)
	assert.Equal(t, []store.WorkerState{store.WorkerWell, store.WorkerWell},
		[]store.WorkerState{all["even"].State, all["odd"].State})
	assert.WithinDuration(t, b.Clock.Now().Add(-6*minute), all["dead"].Seen, minute)
	recent := b.workers("", time.Second)
	assert.True(t, recent.Complete)
	assert.Less(t, recent.Attempts, 500)
}

// A type that shares its journals with a busy one is read as a sample: it isn't said to have had no
// attempts because none of them are in the last blocks.
func TestWorkersBesideABusyType(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	rare := twoStages()
	rare.Name = "rare"
	b.put(rare)
	b.journal(journaled{"even", 120_000, 9 * time.Minute, 0, 0.1, "done"})
	report := b.workers("rare", 10*time.Minute)
	assert.Equal(t, []any{0, false}, []any{report.Count, report.Complete})
	report = b.workers("rare", time.Second)
	assert.True(t, report.Complete, "the last blocks go back to a second ago")
}

// A report leaves out what is locked, and says so.
func TestWorkersOfLockedTables(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.journal(journaled{"even", 40, 9 * time.Minute, 0, 0.1, "done"})
	for name, read := range map[string]int{"journal": 0, "lease": 40} {
		tx, err := b.db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), b.at(1, `LOCK TABLE {`+name+`} IN ACCESS EXCLUSIVE MODE`))
		require.NoError(t, err)
		report := b.workers("pipe", 10*time.Minute)
		require.NoError(t, tx.Rollback(t.Context()))
		assert.Equal(t, []any{read, false}, []any{report.Attempts, report.Complete}, name)
	}
	assert.True(t, b.workers("pipe", 10*time.Minute).Complete)
}

// A worker that may be at a delivery without a name isn't gone, nor is one with an endpoint that
// moved to another URL.
func TestWorkersThatAreNotGone(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	const minute = time.Minute
	b.submit(newTask(`1`))
	b.leaseAll(pipe, 1)
	_, err := b.db.Exec(t.Context(), b.at(1, `UPDATE {lease}
		SET leased_at = now() - interval '119 s'`))
	require.NoError(t, err)
	b.journal(journaled{"busy", 100, 8 * minute, 2 * minute, 0.1, "done"},
		journaled{"other", 140, 8 * minute, 0, 0.1, "done"},
		journaled{"dead", 100, 8 * minute, 6 * minute, 0.1, "done"})
	all := byName(b.workers("pipe", 10*minute))
	assert.Equal(t, []store.WorkerState{store.WorkerWell, store.WorkerGone},
		[]store.WorkerState{all["busy"].State, all["dead"].State})
	_, err = b.db.Exec(t.Context(), b.at(1, `DELETE FROM {lease}`))
	require.NoError(t, err)
	assert.Equal(t, store.WorkerGone, byName(b.workers("pipe", 10*minute))["busy"].State)
	_, err = b.db.Exec(t.Context(), b.at(1, `UPDATE {journal} SET endpoint = 'https://example.com/y'
		|| E'\x1enode\x1fdead' WHERE endpoint LIKE '%other' AND at > now() - interval '30 s'`))
	require.NoError(t, err)
	for _, w := range b.workers("pipe", 10*minute).Workers {
		if w.Name == "dead" {
			assert.Equal(t, store.WorkerWell, w.State, w.URL)
		}
	}
}

// The time of a report is checked, and its type.
func TestBadWorkerFilter(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	now := b.Clock.Now()
	for since, want := range map[time.Time]string{
		now.Add(time.Hour):       "since is not before now",
		now.Add(-25 * time.Hour): "since is more than 24h0m0s ago",
	} {
		_, err := b.Workers(t.Context(), tenant, store.WorkerFilter{Since: since, Limit: 1})
		require.ErrorContains(t, err, want)
		assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	}
	_, err := b.Workers(t.Context(), tenant,
		store.WorkerFilter{Since: now.Add(-24 * time.Hour), Limit: 1})
	require.NoError(t, err, "a caller's 24 hours began before the call")
	_, err = b.Workers(t.Context(), tenant,
		store.WorkerFilter{Type: "nope", Since: now.Add(-time.Hour), Limit: 1})
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}
