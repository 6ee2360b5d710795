package dispatcher_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// mode sets how workers get the tasks of the two stages.
func (n *node) mode(t *testing.T, first, second asyncflow.Mode) {
	t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	spec := pipe.TaskType
	spec.Stages = append([]asyncflow.Stage{}, spec.Stages...)
	spec.Stages[0].Mode, spec.Stages[1].Mode = first, second
	_, _, err = n.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err)
}

// claim claims up to n tasks and waits for the first one.
func (n *node) claim(t *testing.T, stage, claimer string, most int) []asyncflow.Delivery {
	t.Helper()
	all, err := n.Claim(t.Context(), tenant, dispatcher.ClaimRequest{Type: "pipe", Stage: stage,
		Claimer: claimer, Max: most, Wait: patience})
	require.NoError(t, err)
	return all
}

// complete ends a claimed stage.
func (n *node) complete(t *testing.T, d asyncflow.Delivery) {
	t.Helper()
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	settled := make(chan store.Settled, 1)
	n.Settle(tenant, asyncflow.Settlement{Lease: d.Lease, Outcome: done,
		Verdict: asyncflow.Decide(pipe.TaskType, d.Lease, done, n.Clock.Now())},
		func(r store.Settled) { settled <- r })
	require.Equal(t, store.Settled{}, <-settled)
}

// A task may be pushed in one stage and claimed in another. A claim is bound to no node: here the
// task is submitted at one, claimed at another, and ended at the first.
func TestClaimedAndPushed(t *testing.T) {
	t.Parallel()
	for name, modes := range map[string][2]asyncflow.Mode{
		"claimed first": {asyncflow.ModeClaim, asyncflow.ModePush},
		"pushed first":  {asyncflow.ModePush, asyncflow.ModeClaim},
		"only claimed":  {asyncflow.ModeClaim, asyncflow.ModeClaim},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
				at := map[string]int{"first": 0, "second": 1}[d.Lease.Stage]
				assert.NotEqual(t, asyncflow.ModeClaim, modes[at])
				return done
			}
			one, other := b.start("a", dispatcher.Config{}, send),
				b.start("b", dispatcher.Config{}, send)
			one.mode(t, modes[0], modes[1])
			tasks := one.submit(t, 20)
			for i, stage := range []string{"first", "second"} {
				if modes[i] != asyncflow.ModeClaim {
					continue
				}
				for got := 0; got < len(tasks); {
					for _, d := range other.claim(t, stage, fmt.Sprint("anna", got), 7) {
						assert.Equal(t, stage, d.Lease.Stage)
						one.complete(t, d)
						got++
					}
				}
			}
			one.await(t, tasks, asyncflow.StatusSucceeded)
		})
	}
}

// Tasks in line when their stage changes its mode go on in the new one, and so does a task that is
// due later.
func TestModeChanges(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n.Pause(t, "pipe")
	tasks := n.submit(t, 5)
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	_, err := n.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)
	for got := 0; got < 3; got++ {
		n.complete(t, n.claim(t, "first", fmt.Sprint("anna", got), 1)[0])
	}
	require.Eventually(t, func() bool { // the others are out of the line of the dispatcher
		return b.count(`tenant_acme.wait WHERE reason = 'claimer'`) == 2
	}, patience, 20*time.Millisecond)
	n.mode(t, asyncflow.ModePush, asyncflow.ModePush)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	_, err = n.Promote(t.Context(), pipe, []string{"first"}) // as the background job does
	require.NoError(t, err)
	n.await(t, tasks, asyncflow.StatusSucceeded)
}

// Claimers on two nodes never get the same task, and together they get all.
func TestClaimersShareWithoutDoubles(t *testing.T) {
	b := setup(t)
	send := func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done }
	nodes := []*node{b.start("a", dispatcher.Config{}, send),
		b.start("b", dispatcher.Config{}, send)}
	nodes[0].mode(t, asyncflow.ModeClaim, asyncflow.ModeClaim)
	require.NoError(t, nodes[1].Catalog.RefreshTenant(t.Context(), tenant)) // else it pushes some
	const tasks = 500
	got := make(chan asyncflow.TaskID, 2*tasks)
	ctx, stop := context.WithCancel(t.Context())
	var claimers sync.WaitGroup
	defer claimers.Wait()
	defer stop()
	for c := range 16 {
		n := nodes[c%2]
		claimers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				all, err := n.Claim(ctx, tenant,
					dispatcher.ClaimRequest{Type: "pipe", Stage: "first",
						Claimer: fmt.Sprintf("c%d-%d", c, i), Max: 3, Wait: patience})
				if !assert.NoError(t, err) {
					return
				}
				for _, d := range all {
					got <- d.Lease.ID
				}
			}
		})
	}
	want := map[asyncflow.TaskID]bool{}
	for range tasks / 50 {
		for _, r := range nodes[1].submit(t, 50) {
			want[r.ID] = true
		}
	}
	for range tasks {
		id := <-got
		assert.True(t, want[id], "claimed twice: %s", id)
		delete(want, id)
	}
	assert.Empty(t, want)
}

// Calls that wait end when their stage is no longer claimed, and when its type is deleted.
func TestClaimersOfAStageThatIsGone(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	for _, gone := range []struct {
		code asyncflow.Code
		end  func()
	}{
		{asyncflow.CodeConflict, func() { n.mode(t, asyncflow.ModePush, asyncflow.ModePush) }},
		{asyncflow.CodeNotFound, func() {
			require.NoError(t, n.DeleteTaskType(t.Context(), tenant, "pipe", false))
		}},
	} {
		n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
		ended := make(chan error, 1)
		go func() {
			_, err := n.Claim(t.Context(), tenant,
				dispatcher.ClaimRequest{Type: "pipe", Stage: "first", Claimer: "anna", Max: 1,
					Wait: patience})
			ended <- err
		}()
		require.Eventually(t, func() bool { return n.WaitingClaims() == 1 }, patience,
			20*time.Millisecond)
		gone.end()
		assert.Equal(t, gone.code, asyncflow.CodeOf(<-ended))
	}
}

// A transaction that was rolled back gives nothing back: they may be somebody else's by then.
func TestAFailedClaimGivesNothingBack(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	for range 3 {
		n.submit(t, 1)
		unlock := b.lock("tenant_acme.lease")
		looks := n.ClaimLooks()
		got := make(chan []asyncflow.Delivery, 1)
		go func() { got <- n.claim(t, "first", "anna", 1) }()
		require.Eventually(t, func() bool { return n.ClaimLooks() > looks+2 }, patience,
			20*time.Millisecond)
		unlock()
		one := (<-got)[0]
		// what was to be given back would be by now
		n.complete(t, n.claimOf(t, n.submit(t, 1)[0].ID))
		n.complete(t, one)
	}
}

// claimOf claims a task.
func (n *node) claimOf(t *testing.T, id asyncflow.TaskID) asyncflow.Delivery {
	t.Helper()
	d := n.claim(t, "first", id.String(), 1)[0]
	require.Equal(t, id, d.Lease.ID)
	return d
}

// A call ends in time also while all transactions for claims are taken.
func TestAClaimWithoutASlotEnds(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	defer n.TakeClaimSlots()()
	for _, wait := range []time.Duration{0, time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		got, err := n.Claim(ctx, tenant, dispatcher.ClaimRequest{Type: "pipe", Stage: "first",
			Claimer: "anna", Max: 1, Wait: wait})
		require.NoError(t, err)
		assert.Empty(t, got)
	}
}

// A claimer at the limit of its open claims that waits for more costs little.
func TestAFullClaimerWaits(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	n.submit(t, asyncflow.MaxOpenClaims+1)
	full := dispatcher.ClaimRequest{Type: "pipe", Stage: "first", Claimer: "anna",
		Max: asyncflow.MaxClaims, Wait: patience}
	for len(full.Held) < asyncflow.MaxOpenClaims {
		all, err := n.Claim(t.Context(), tenant, full)
		require.NoError(t, err)
		for _, d := range all {
			full.Held = append(full.Held, d.Lease.ID)
		}
	}
	require.Len(t, full.Held, asyncflow.MaxOpenClaims)
	looks := n.ClaimLooks()
	full.Wait = 1500 * time.Millisecond
	all, err := n.Claim(t.Context(), tenant, full)
	require.NoError(t, err)
	assert.Empty(t, all)
	assert.LessOrEqual(t, n.ClaimLooks()-looks, int64(4))
}

// Of two calls of one claimer that wait, the later one stays, also if the first one was looking for
// tasks when it came.
func TestALaterCallReplacesOneThatLooks(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	wait := b.lock("tenant_acme.wait")
	first, second := make(chan []asyncflow.Delivery, 1), make(chan []asyncflow.Delivery, 1)
	looks := n.ClaimLooks()
	go func() { first <- n.claim(t, "first", "anna", 1) }()
	require.Eventually(t, func() bool {
		return n.ClaimLooks() > looks
	}, patience, 20*time.Millisecond)
	go func() { second <- n.claim(t, "first", "anna", 1) }()
	select {
	case all := <-first:
		assert.Empty(t, all)
	case <-time.After(patience / 2):
		assert.Fail(t, "both wait")
	}
	wait()
	id := n.submit(t, 1)[0].ID
	all := <-second
	require.Len(t, all, 1)
	assert.Equal(t, id, all[0].Lease.ID)
}

// An answer that can't be written gives its tasks back, without an attempt. But if the claimer got
// them by a later answer meanwhile, or was heard of, they are its own: nobody else gets them.
func TestOnlyUnseenClaimsAreReleased(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	tasks := n.submit(t, 1)
	release := func(d asyncflow.Delivery) {
		n.ReleaseClaims(tenant, []asyncflow.Lease{d.Lease}, "the claimer is gone")
	}
	lost := n.claim(t, "first", "anna", 1)[0]
	release(lost)
	lost2 := n.claim(t, "first", "bob", 1)[0]
	require.Equal(t, []int{2, 1}, []int{lost2.Lease.Seq, lost2.Lease.Attempt})

	got := n.claim(t, "first", "bob", 1)[0]
	require.Equal(t, 2, got.Lease.Seq, "its own claim again")
	release(lost2)
	heard := make(chan bool, 1)
	n.Extend(tenant, got.Lease, got.Latest, store.Checkpoint{}, store.Seen{},
		func(stands bool, err error) {
			assert.NoError(t, err)
			heard <- stands
		})
	require.True(t, <-heard, "the second answer's claim stands")
	release(got)
	n.complete(t, got)
	n.await(t, tasks, asyncflow.StatusSucceeded)
}

// Tasks that were submitted by SQL are claimed like others; those that wait for other tasks aren't
// handed out before these end.
func TestClaimsOfSQLSubmitsAndDependents(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			return done
		})
	n.mode(t, asyncflow.ModeClaim, asyncflow.ModePush)
	dependents := n.Submit(t.Context(), tenant, []asyncflow.NewTask{keyedTask("after", "base")})
	require.NoError(t, dependents[0].Err)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), `SELECT tenant_acme.submit_task('pipe', '1', key => 'base')`)
	require.NoError(t, err)
	for _, key := range []string{"base", "after"} {
		got := n.claim(t, "first", "anna", 10)
		require.Len(t, got, 1)
		require.Equal(t, key, got[0].Lease.Options.Key)
		n.complete(t, got[0])
	}
	n.await(t, dependents, asyncflow.StatusSucceeded)
}
