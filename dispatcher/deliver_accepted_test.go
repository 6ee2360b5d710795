package dispatcher_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// accepting returns a node of its own, and a lease whose 202 isn't written yet.
func (w *writer) accepting() (*writer, asyncflow.Lease) {
	w.t.Helper()
	pipe := w.put(writerType())
	other := w.deaf("accepting")
	other.SetAcceptedWait(200 * time.Millisecond)
	w.submit(newTask(`1`))
	return other, w.lease(pipe, 1)[0]
}

// until returns when a lease ends.
func (w *writer) until() (at time.Time) {
	w.t.Helper()
	require.NoError(w.t, w.db.QueryRow(w.t.Context(),
		`SELECT until FROM tenant_acme.lease`).Scan(&at))
	return at
}

// A 202 is written a little later.
func TestAcceptIsWritten(t *testing.T) {
	w := setupWriter(t)
	s, l := w.accepting()
	defer s.Committer.Close()
	deadline := l.Until.Add(time.Hour)
	written := make(chan error, 1)
	l.Options.Child = &asyncflow.Child{Count: 2, Shared: json.RawMessage(`"long"`)}
	s.Accept(tenant, l, deadline, store.Seen{}, func(err error) { written <- err })
	known, ok := s.Accepted(tenant, l.ID, l.Seq)
	require.True(t, ok)
	assert.Equal(t, [4]any{l.ID, l.Stage, l.Attempt, l.LeasedAt},
		[4]any{known.ID, known.Stage, known.Attempt, known.LeasedAt})
	assert.Nil(t, known.Context)
	assert.Equal(t, &asyncflow.Child{Count: 2}, known.Options.Child)
	assert.NotNil(t, l.Options.Child.Shared, "of other copies of the lease")
	assert.True(t, l.Until.Equal(w.until()))
	require.NoError(t, <-written)
	assert.True(t, deadline.Equal(w.until()))
	_, ok = s.Accepted(tenant, l.ID, l.Seq)
	assert.True(t, ok, "reports still need no look at the database")
}

// If there are more leases than the node remembers, it writes the oldest at once.
func TestAcceptIsBounded(t *testing.T) {
	w := setupWriter(t)
	s, l := w.accepting()
	defer s.Committer.Close()
	s.SetAcceptedWait(time.Hour)
	l.Until = l.Until.Add(2 * time.Hour)
	written := make(chan asyncflow.TaskID, dispatcher.AcceptedMost+1)
	for range dispatcher.AcceptedMost + 1 {
		id := l.ID
		s.Accept(tenant, l, l.Until.Add(time.Hour), store.Seen{}, func(error) { written <- id })
		l.ID.Number++
	}
	first := <-written
	_, ok := s.Accepted(tenant, first, l.Seq)
	assert.False(t, ok)
	first.Number++
	_, ok = s.Accepted(tenant, first, l.Seq)
	assert.True(t, ok)
	assert.Empty(t, written)
}

// Close writes all that isn't written yet.
func TestAcceptIsWrittenAtClose(t *testing.T) {
	w := setupWriter(t)
	s, l := w.accepting()
	deadline := l.Until.Add(time.Hour)
	written := make(chan error, 1)
	s.Accept(tenant, l, deadline, store.Seen{}, func(err error) { written <- err })
	s.Committer.Close()
	require.NoError(t, <-written)
	assert.True(t, deadline.Equal(w.until()))
}

// A report in time makes the write unnecessary.
func TestAcceptIsSparedByAReport(t *testing.T) {
	w := setupWriter(t)
	s, l := w.accepting()
	written := make(chan error, 1)
	s.Accept(tenant, l, l.Until.Add(time.Hour), store.Seen{}, func(err error) { written <- err })
	settled := make(chan store.Settled, 1)
	s.Settle(tenant, asyncflow.Settlement{Lease: l,
		Outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeDone},
		Verdict: asyncflow.Verdict{Kind: asyncflow.Succeed}},
		func(r store.Settled) { settled <- r })
	assert.Equal(t, store.Settled{}, <-settled)
	_, ok := s.Accepted(tenant, l.ID, l.Seq)
	assert.False(t, ok)
	s.Committer.Close() // it would write the 202
	assert.Empty(t, written)
}

// A later heartbeat wins over the 202, on any node.
func TestAcceptGivesWayToAHeartbeat(t *testing.T) {
	t.Parallel()
	for name, early := range map[string]bool{"before": true, "after": false} {
		for _, other := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, on another node: %t", name, other), func(t *testing.T) {
				w := setupWriter(t)
				s, l := w.accepting()
				at := s
				if other {
					at = w
				}
				heartbeat := func() {
					extended := make(chan bool, 1)
					at.Extend(tenant, l, l.Until.Add(time.Hour), store.Checkpoint{}, store.Seen{},
						func(stands bool, err error) { extended <- stands && err == nil })
					require.True(t, <-extended)
				}
				if early {
					heartbeat()
				}
				s.Accept(tenant, l, l.Until.Add(time.Minute), store.Seen{}, func(error) {})
				if !early {
					heartbeat()
				}
				s.Committer.Close()
				assert.True(t, l.Until.Add(time.Hour).Equal(w.until()))
			})
		}
	}
}

// A report that can't be written doesn't change the extension.
func TestAcceptOutlivesABadReport(t *testing.T) {
	w := setupWriter(t)
	s, l := w.accepting()
	deadline := l.Until.Add(time.Hour)
	written := make(chan error, 1)
	s.Accept(tenant, l, deadline, store.Seen{}, func(err error) { written <- err })
	settled := make(chan store.Settled, 1)
	s.Settle(tenant, asyncflow.Settlement{Lease: l,
		Outcome: asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: []byte("\xff")},
		Verdict: asyncflow.Verdict{Kind: asyncflow.Succeed}},
		func(r store.Settled) { settled <- r })
	require.Error(t, (<-settled).Err)
	s.Committer.Close()
	require.NoError(t, <-written)
	assert.True(t, deadline.Equal(w.until()))
}

// If a lease is about to run out, its extension is written at once.
func TestAcceptAtTheLastMoment(t *testing.T) {
	w := setupWriter(t)
	s, l := w.accepting()
	defer s.Committer.Close()
	s.SetAcceptedWait(time.Hour)
	l.Until = s.Clock.Now().Add(time.Hour)
	written := make(chan error, 1)
	s.Accept(tenant, l, l.Until.Add(time.Hour), store.Seen{}, func(err error) { written <- err })
	require.NoError(t, <-written)
}

// A stage may allow less time for processing than for its delivery. Then the 202 makes the lease
// end sooner. That is written at once, and announced to the background jobs that rescue leases.
func TestAcceptOfAShortStage(t *testing.T) {
	w := setupWriter(t)
	spec := writerType()
	spec.Stages[0].Timeout = asyncflow.NewDuration(5 * time.Minute)
	spec.Stages[0].MaxProcessingTime = asyncflow.NewDuration(time.Minute)
	pipe := w.put(spec)
	s := w.deaf("accepting")
	s.SetAcceptedWait(4 * time.Minute)
	wakes := make(chan time.Time, 10)
	listen(t, s.Store, func(key store.TypeKey, at time.Time) { wakes <- at }, func() {})
	w.submit(newTask(`1`))
	l := w.lease(pipe, 1)[0]
	deadline := w.Clock.Now().Add(time.Minute)
	written := make(chan error, 1)
	s.Accept(tenant, l, deadline, store.Seen{}, func(err error) { written <- err })
	select {
	case err := <-written:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("it is not written at once")
	}
	assert.WithinDuration(t, deadline, w.until(), time.Microsecond)
	assert.Equal(t, deadline, <-wakes)
	s.Committer.Close()
}

// The name in a 202 that isn't written yet is written with a heartbeat without one.
func TestAcceptLeavesItsNameToAHeartbeat(t *testing.T) {
	w := setupWriter(t)
	s, l := w.accepting()
	defer s.Committer.Close()
	s.SetAcceptedWait(time.Hour)
	l.Until = l.Until.Add(2 * time.Hour)
	s.Accept(tenant, l, l.Until.Add(time.Minute), store.Seen{Worker: "worker-1"}, func(error) {})
	for _, named := range []struct{ beat, want string }{{"", "worker-1"}, {"worker-2", "worker-2"},
		{"", "worker-2"}} {
		extended := make(chan bool, 1)
		s.Extend(tenant, l, l.Until.Add(time.Hour), store.Checkpoint{},
			store.Seen{Beat: w.Clock.Now(), Worker: named.beat},
			func(stands bool, err error) { extended <- stands && err == nil })
		require.True(t, <-extended)
		var worker string
		require.NoError(t, w.db.QueryRow(t.Context(),
			`SELECT coalesce(worker, '') FROM tenant_acme.lease`).Scan(&worker))
		require.Equal(t, named.want, worker)
	}
}
