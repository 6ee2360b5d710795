package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A task that waits for a month, one that is retried in two days, and one that is with a worker for
// hours delay no roll. When their time comes they stand in their place in the order of all tasks.
func TestStragglers(t *testing.T) { eachSet(t, stragglers) }

func stragglers(t *testing.T, b *bundle) {
	spec := twoStages()
	spec.Stages[0].Retry.Interval = asyncflow.Seconds(-2 * 24 * 3600)
	b.put(spec)
	delayed := newTask(`"delayed"`)
	delayed.Delay = asyncflow.NewDuration(30 * 24 * time.Hour)
	month := b.submit(delayed)[0].ID
	b.submit(newTask(`"retried"`))
	b.settle(b.known(), b.lease(b.known(), 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Status: 500})
	b.submit(newTask(`"accepted"`))
	accepted := b.lease(b.known(), 1)[0]
	extended := make(chan bool, 1)
	b.Extend(tenant, accepted, b.Clock.Now().Add(6*time.Hour), store.Checkpoint{}, store.Seen{},
		func(stands bool, err error) { extended <- stands && err == nil })
	require.True(t, receive(t, extended))

	for roll := 2; roll <= 4; roll++ {
		b.submit(newTask(fmt.Sprint(roll)))
		pipe := b.roll()
		for _, l := range b.lease(pipe, 10) {
			b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		}
		drained, err := b.DrainRoll(t.Context(), pipe.Set())
		require.NoError(t, err)
		require.True(t, drained, "roll %d", roll-1)
		cleared, err := b.ClearRoll(t.Context(), b.known().Set(), roll-1)
		require.NoError(t, err)
		require.True(t, cleared)
	}
	require.Equal(t, []int{1, 4, 4}, b.positions())

	// Their time comes while there is a backlog in an old roll and, in the new one, a task with a
	// head start of an hour.
	b.submit(newTask(`"backlog 1"`), newTask(`"backlog 2"`))
	pipe := b.roll()
	urgent := newTask(`"urgent"`)
	urgent.Options.Priority = asyncflow.Priority{3600}
	b.submit(urgent)
	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.wait SET until = now(), order_time = now() - interval '1 min' * CASE
			WHEN id = $1 THEN 30 ELSE 90 END`, month.Number)
	require.NoError(t, err)
	n, err := b.Promote(t.Context(), pipe, nil)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	// its second stage begins now
	b.settle(pipe, accepted, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	var order []string
	for len(order) < 6 {
		for _, l := range b.lease(pipe, 1) { // one at a time: each from the older head
			order = append(order, string(l.Context))
		}
	}
	assert.Equal(t,
		[]string{`"retried"`, `"urgent"`, `"delayed"`, `"backlog 1"`, `"backlog 2"`, `"accepted"`},
		order)
}

// While there are tasks of two rolls in line, a lease of many takes them in their order, whichever
// roll they are in.
func TestLeaseKeepsTheOrderOfRolls(t *testing.T) { eachSet(t, leaseKeepsTheOrderOfRolls) }

func leaseKeepsTheOrderOfRolls(t *testing.T, b *bundle) {
	b.put(twoStages())
	many := func(n int, context string) {
		tasks := make([]asyncflow.NewTask, n)
		for i := range tasks {
			tasks[i] = newTask(context)
		}
		b.submit(tasks...)
	}
	many(30, `"old"`)
	pipe := b.roll()
	urgent := newTask(`"urgent"`)
	urgent.Options.Priority = asyncflow.Priority{3600}
	b.submit(urgent)
	many(30, `"new"`)
	got := contexts(b.lease(pipe, 40))
	want := slices.Concat([]string{`"urgent"`}, slices.Repeat([]string{`"old"`}, 30),
		slices.Repeat([]string{`"new"`}, 9))
	require.Equal(t, want, got)
	require.Len(t, b.lease(pipe, 40), 21)
}

// Where the tasks of two rolls alternate in order, a lease takes few at a time from each, and all
// of them; so does that of a limited type.
func TestLeaseOfMixedRolls(t *testing.T) { eachSet(t, leaseOfMixedRolls) }

func leaseOfMixedRolls(t *testing.T, b *bundle) {
	b.put(twoStages())
	at := func(second int) {
		task := newTask(fmt.Sprint(second))
		task.Options.Priority = asyncflow.Priority{3600 - second}
		b.submit(task)
	}
	for i := 0; i < 160; i += 2 {
		at(i * 10)
	}
	b.roll()
	for i := 1; i < 160; i += 2 {
		at(i * 10)
	}
	overtaken := func(got []string) (most int) {
		for i, one := range got {
			n := 0
			for _, before := range got[:i] {
				a, _ := strconv.Atoi(before)
				if b, _ := strconv.Atoi(one); a > b {
					n++
				}
			}
			most = max(most, n)
		}
		return most
	}
	got := contexts(b.lease(b.known(), 80))
	require.Len(t, got, 80)
	require.LessOrEqual(t, overtaken(got), 10)
	got = nil
	for len(got) < 80 {
		got = append(got, contexts(b.leaseLimited(80, &doorman{}))...)
	}
	require.LessOrEqual(t, overtaken(got), 10)
	b.checkTokens("pipe")
}
