package dispatcher_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Tables of the tenant.
const (
	ready = "tenant_acme.ready_1"
	lease = "tenant_acme.lease"
)

var pipeKey = store.TypeKey{Tenant: tenant, Type: "pipe"}

// shut makes a table refuse new rows.
func (b *bundle) shut(table string) {
	b.quietly(`ALTER TABLE ` + table + ` ADD CONSTRAINT shut CHECK (false) NOT VALID`)
}

func (b *bundle) reopen(table string) {
	b.quietly(`ALTER TABLE ` + table + ` DROP CONSTRAINT shut`)
}

// lock keeps writers from a table until unlock is called.
func (b *bundle) lock(table string) (unlock func()) {
	b.t.Helper()
	return pgtest.Hold(b.t, b.url, `LOCK TABLE `+table+` IN EXCLUSIVE MODE`)
}

// waitsForLock waits until a statement waits for a lock.
func (b *bundle) waitsForLock() {
	b.t.Helper()
	require.Eventually(b.t, func() bool { return b.waitingForLocks() > 0 }, patience,
		20*time.Millisecond)
}

// waitingForLocks returns how many statements wait for a lock.
func (b *bundle) waitingForLocks() int {
	b.t.Helper()
	return b.count(pgtest.Activity() +
		` WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}

func (b *bundle) count(table string) (n int) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	require.NoError(b.t, conn.QueryRow(b.t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// last is a final outcome.
var last = asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200}

// handsOff waits until the node begins new tasks at once: other tasks can't be submitted while the
// ready table is shut.
func (n *node) handsOff(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		return n.Submit(t.Context(), tenant, newTasks(1))[0].Err == nil
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return n.InFlight() == 0 }, patience, 20*time.Millisecond)
}

// startIdle starts a node that begins new tasks at once, with the ready table shut. It returns a
// channel with the deliveries that it sends from then on.
func (b *bundle) startIdle() (*node, <-chan asyncflow.Delivery) {
	b.t.Helper()
	sent := make(chan asyncflow.Delivery, 100)
	n := b.start("a", dispatcher.Config{},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			sent <- d
			return last
		})
	b.shut(ready)
	n.handsOff(b.t)
	<-sent
	return n, sent
}

// On an idle node a new task never gets into the ready table: it is inserted with its lease, and
// delivered with its context and options.
func TestHandoff(t *testing.T) {
	b := setup(t)
	n, sent := b.startIdle()

	tasks := newTasks(3)
	tasks[1].Options = asyncflow.Options{
		Retry:    &asyncflow.RetryPolicy{MaxAttempts: 2},
		Priority: asyncflow.Priority{1},
	}
	tasks[2].Options.Key, tasks[2].KeyWindow = "once", asyncflow.KeyFor(time.Hour)
	results := n.Submit(t.Context(), tenant, tasks)
	n.await(t, results, asyncflow.StatusFailed)
	for range tasks {
		d := <-sent
		i := slices.IndexFunc(results, func(r store.Submitted) bool { return r.ID == d.Lease.ID })
		require.GreaterOrEqual(t, i, 0)
		assert.JSONEq(t, string(tasks[i].Context), string(d.Lease.Context))
		assert.Equal(t, tasks[i].Options, d.Lease.Options)
		assert.Equal(t, []any{"first", 1, 1}, []any{d.Lease.Stage, d.Lease.Attempt, d.Lease.Seq})
		assert.True(t, results[i].OrderTime.Equal(d.Lease.OrderTime))
		assert.WithinDuration(t, d.Lease.LeasedAt.Add(asyncflow.DefaultTimeout+store.LeaseMargin),
			d.Lease.Until, time.Millisecond)
	}
	again := n.Submit(t.Context(), tenant, tasks[2:])
	require.NoError(t, again[0].Err)
	assert.Equal(t, results[2].ID, again[0].ID)
	assert.Empty(t, sent, "the key stands for a task that was delivered")
	n.isEmpty(t)
}

// isEmpty waits until nothing is in flight, and checks that all counts are zero.
func (n *node) isEmpty(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return n.InFlight() == 0 && n.Leasing(pipeKey) == 0 },
		patience, 20*time.Millisecond)
	assert.Zero(t, n.Load())
}

// The tasks of one submit may be of several types. Each type stands in its own line.
func TestNewTasksOfSeveralTypes(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			return last
		})
	b.shut(ready)
	n.handsOff(t)
	n.addType(t, "other", 8)
	tasks := newTasks(3)
	tasks[1].Type = "other"
	var results []store.Submitted
	require.Eventually(
		t,
		func() bool { // the look at the new type reached pipe, too: nothing of it can go in line
			if !n.IsIdle(pipeKey) {
				return false
			}
			results = n.Submit(t.Context(), tenant, tasks)
			return results[0].Err == nil && results[1].Err == nil && results[2].Err == nil
		},
		patience,
		20*time.Millisecond,
	)
	var types []string
	for _, r := range results {
		types = append(types, r.ID.Type)
	}
	assert.Equal(t, []string{"pipe", "other", "pipe"}, types)
	n.await(t, results, asyncflow.StatusFailed)
	tasks[2].Type = "none"
	require.Eventually(t, func() bool { // a busy machine may not be idle just then
		results = n.Submit(t.Context(), tenant, tasks[1:])
		return results[0].Err == nil
	}, patience, 20*time.Millisecond)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(results[1].Err))
	n.await(t, results[:1], asyncflow.StatusFailed)
	n.isEmpty(t)
}

// If there are more tasks than slots, the first in order begin at once. The others wait in line,
// and later tasks don't overtake them.
func TestHandoffKeepsTheOrder(t *testing.T) {
	b := setup(t)
	b.exec(
		// of one endpoint all slots may be
		`DELETE FROM tenant_acme.endpoints WHERE stage = 'second'`)
	var mu sync.Mutex
	var got []asyncflow.TaskID
	answers := make(chan struct{})
	n := b.start("a", dispatcher.Config{Concurrency: 5},
		func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			mu.Lock()
			got = append(got, d.Lease.ID)
			mu.Unlock()
			<-answers
			return last
		})
	b.shut(ready)
	go func() { answers <- struct{}{} }()
	n.handsOff(t)
	b.reopen(ready)
	got = nil

	tasks := newTasks(12)
	for i := range tasks {
		tasks[i].Options.Priority = asyncflow.Priority{i % 7}
	}
	all := n.Submit(t.Context(), tenant, tasks)
	held := n.InFlight()
	require.Equal(t, 4, held, "four fifths of the slots")
	for range 8 { // there are slots left, but others are before these
		all = append(all, n.Submit(t.Context(), tenant, newTasks(1))...)
	}
	require.Equal(t, held, n.InFlight())
	close(answers)
	n.await(t, all, asyncflow.StatusFailed)
	want := slices.Clone(all)
	slices.SortFunc(want, func(a, b store.Submitted) int {
		return cmp.Or(a.OrderTime.Compare(b.OrderTime), cmp.Compare(a.ID.Number, b.ID.Number))
	})
	ids := make([]asyncflow.TaskID, len(want))
	for i, r := range want {
		ids[i] = r.ID
	}
	assert.ElementsMatch(t, ids, got)
	assert.LessOrEqual(t, mostOvertaken(ids, got), held)
	assert.ElementsMatch(t, ids[:held], got[:held], "the first in order were handed over")
}

// New tasks wait for capacity that will soon be free, and don't go in line.
func TestNewTasksWaitForCapacity(t *testing.T) {
	b := setup(t)
	answers := make(chan struct{})
	n := b.start("a", dispatcher.Config{Concurrency: 5},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			<-answers
			return last
		})
	answerAll := func() {
		for n.InFlight() > 0 {
			select {
			case answers <- struct{}{}:
			case <-time.After(time.Millisecond):
			}
		}
	}
	b.shut(ready) // nothing can go in line
	require.Eventually(t, func() bool {
		defer answerAll()
		n.ForgetDurations(pipeKey) // perhaps an earlier try was slow
		for _, r := range n.Submit(t.Context(), tenant, newTasks(4)) {
			if r.Err != nil { // the node doesn't know yet that none is in line
				return false
			}
		}
		submitted := make(chan error, 1)
		go func() { submitted <- n.Submit(t.Context(), tenant, newTasks(1))[0].Err }()
		for n.Waiting() == 0 {
			select {
			case <-submitted: // it was held up for longer than it would wait
				return false
			case <-time.After(100 * time.Microsecond):
			}
		}
		answerAll()
		return <-submitted == nil
	}, patience, 20*time.Millisecond)
}

// Tasks of several types that come in one call wait for capacity at the same time.
func TestTypesOfACallGoTogether(t *testing.T) {
	b := setup(t)
	answers := make(chan struct{})
	n := b.start("a", dispatcher.Config{Concurrency: 5},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			<-answers
			return last
		})
	n.addType(t, "other", 100)
	other := []asyncflow.NewTask{{Type: "other", Context: json.RawMessage(`1`)}}
	both := append(newTasks(1), other...)
	answerAll := func() {
		for n.InFlight() > 0 {
			select {
			case answers <- struct{}{}:
			case <-time.After(time.Millisecond):
			}
		}
	}
	b.shut(ready) // nothing can go in line
	submit := func(tasks []asyncflow.NewTask) (ok bool) {
		for _, r := range n.Submit(t.Context(), tenant, tasks) {
			if r.Err != nil { // the node doesn't know yet that none is in line
				return false
			}
		}
		return true
	}
	require.Eventually(t, func() bool {
		defer answerAll()
		n.ForgetDurations(pipeKey) // perhaps an earlier try was slow
		n.ForgetDurations(store.TypeKey{Tenant: tenant, Type: "other"})
		if !submit(newTasks(4)) || !submit(other) {
			return false
		}
		submitted := make(chan bool, 1)
		go func() { submitted <- submit(both) }()
		for n.Waiting() < 2 {
			select {
			case <-submitted: // the second was held up for longer than it would wait
				return false
			case <-time.After(100 * time.Microsecond):
			}
		}
		answerAll()
		return <-submitted
	}, patience, 20*time.Millisecond)
}

// While a lease checks whether tasks are in line, new tasks wait for its result.
func TestNewTasksWaitForALook(t *testing.T) {
	b := setup(t)
	answers := make(chan struct{})
	defer close(answers)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			<-answers
			return last
		})
	b.shut(ready) // nothing can go in line
	require.Eventually(t, func() bool {
		return n.Submit(t.Context(), tenant, newTasks(1))[0].Err == nil
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool {
		unlock := b.lock(ready)
		// the look finds nothing as long as the lock stands
		n.Wakeups.Announce(pipeKey, n.Clock.Now())
		submitted := make(chan error, 1)
		go func() { submitted <- n.Submit(t.Context(), tenant, newTasks(1))[0].Err }()
		for n.Waiting() == 0 {
			select {
			case <-submitted: // it was held up until the look had taken long
				unlock()
				return false
			case <-time.After(100 * time.Microsecond):
			}
		}
		unlock()
		return <-submitted == nil
	}, patience, 20*time.Millisecond)
}

// Tasks that aren't due, and tasks of a type that needs more than slots, wait in line.
func TestNoHandoff(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, hinder := range map[string]func(*testing.T, *bundle, *node, []asyncflow.NewTask){
		"a delay": func(_ *testing.T, _ *bundle, _ *node, tasks []asyncflow.NewTask) {
			tasks[0].Delay = asyncflow.NewDuration(time.Second)
		},
		"a limit of the endpoint": func(t *testing.T, b *bundle, n *node, _ []asyncflow.NewTask) {
			b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = 3`)
			require.Eventually(t, func() bool {
				pipe, err := n.Catalog.Type(tenant, "pipe")
				return err == nil && pipe.Endpoints("first")[0].Limits.MaxInFlight == 3
			}, patience, 20*time.Millisecond)
		},
		"an interval of the schedule": func(t *testing.T, _ *bundle, n *node, _ []asyncflow.NewTask) {
			n.put(t, func(tt *asyncflow.TaskType) {
				tt.ScheduleInterval = asyncflow.NewDuration(time.Second)
			})
		},
		"a pause": func(t *testing.T, _ *bundle, n *node, _ []asyncflow.NewTask) {
			n.Pause(t, "pipe")
		},
		"a stop": func(_ *testing.T, _ *bundle, n *node, _ []asyncflow.NewTask) { n.halt() },
		"others in line": func(t *testing.T, b *bundle, n *node, _ []asyncflow.NewTask) {
			b.open(store.Config{Node: "silent"}).submit(t, 1)
			conn, err := pgx.Connect(t.Context(), b.url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
			_, err = conn.Exec(t.Context(), `BEGIN`)
			require.NoError(t, err)
			// No node can lease it.
			_, err = conn.Exec(t.Context(), `SELECT FROM `+ready+` FOR UPDATE`)
			require.NoError(t, err)
			n.Wakeups.Announce(pipeKey, n.Clock.Now())
		},
		"a missing endpoint": func(t *testing.T, b *bundle, n *node, _ []asyncflow.NewTask) {
			b.exec(`DELETE FROM tenant_acme.endpoints`)
			require.Eventually(t, func() bool {
				pipe, err := n.Catalog.Type(tenant, "pipe")
				return err == nil && !pipe.Serves("first")
			}, patience, 20*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			n := b.start("a", dispatcher.Config{},
				func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
			b.shut(ready)
			n.handsOff(t)
			b.shut(lease)
			b.reopen(ready)
			tasks := newTasks(1)
			hinder(t, b, n, tasks)
			// the node may look at the type meanwhile, because it hears of the change
			for range 50 {
				require.NoError(t, n.Submit(t.Context(), tenant, tasks)[0].Err, "it has no lease")
			}
		})
	}
}

// No more tasks of a tenant are in flight than its quota allows, for any number of concurrent
// submits and types.
func TestHandoffWithinTheTenantsQuota(t *testing.T) {
	b := setup(t)
	b.exec(`UPDATE asyncflow.tenants SET quotas = '{"concurrency": 3}'`)
	var now, most atomic.Int32
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
			defer now.Add(-1)
			for v := now.Add(1); ; {
				if old := most.Load(); v <= old || most.CompareAndSwap(old, v) {
					break
				}
			}
			<-time.After(time.Millisecond)
			return last
		})
	b.shut(ready)
	n.handsOff(t)
	b.reopen(ready)
	pipe, err := n.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	types := []string{"pipe", "other", "third"}
	for i, name := range types[1:] {
		spec, e := pipe.TaskType, pipe.Endpoints("first")[0]
		spec.Name, e.Type, e.ID = name, name,
			fmt.Sprintf("0190a6f0-0000-7000-8000-0000000001%02d", i)
		_, _, err = n.PutTaskType(t.Context(), tenant, spec)
		require.NoError(t, err)
		_, err = n.CreateEndpoint(t.Context(), tenant, e)
		require.NoError(t, err)
	}
	var submits sync.WaitGroup
	for i := range 60 {
		submits.Go(func() {
			tasks := newTasks(2)
			for j := range tasks {
				tasks[j].Type = types[i%len(types)]
			}
			results := n.Submit(t.Context(), tenant, tasks)
			require.NoError(t, results[0].Err)
			n.await(t, results, asyncflow.StatusFailed)
		})
	}
	submits.Wait()
	assert.LessOrEqual(t, most.Load(), int32(3))
	assert.Greater(t, most.Load(), int32(1), "and it uses it")
}

// A submit that fails gives the slots back.
func TestHandoffThatFails(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	b.shut(ready)
	n.handsOff(t)
	b.shut(lease)
	for _, r := range n.Submit(t.Context(), tenant, newTasks(5)) {
		assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(r.Err))
	}
	n.isEmpty(t)
	b.reopen(lease)
	n.handsOff(t)
}

// A commit that takes longer than the margin of a lease costs no attempt: the task is sent
// when there is time enough for it.
func TestHandoffThatCommitsLate(t *testing.T) {
	b := setup(t)
	n, sent := b.startIdle()
	b.reopen(ready)
	var tasks []store.Submitted
	for range 5 { // on a slow machine the lock may outlast the submit's patience
		unlock := b.lock(lease)
		submitted := make(chan []store.Submitted, 1)
		go func() { submitted <- n.Submit(context.Background(), tenant, newTasks(1)) }()
		b.waitsForLock()
		over := n.Clock.Now().Add(store.LeaseMargin)
		require.Eventually(t, func() bool { return n.Clock.Now().After(over) }, patience,
			10*time.Millisecond)
		unlock()
		if tasks = <-submitted; asyncflow.CodeOf(tasks[0].Err) != asyncflow.CodeUnavailable {
			break
		}
	}
	n.await(t, tasks, asyncflow.StatusFailed)
	d := <-sent
	assert.Equal(t, asyncflow.DefaultTimeout, d.Timeout)
	assert.Equal(t, 1, d.Lease.Attempt,
		"it was given back, or the submit tried again, without an attempt")
}

// A stop waits for tasks that are about to begin, and gives them back.
func TestStopDuringAHandoff(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	b.shut(ready)
	n.handsOff(t)

	unlock := b.lock(lease)
	submitted := make(chan []store.Submitted, 1)
	go func() {
		tasks := n.Submit(context.Background(), tenant, newTasks(3))
		for tasks[0].Err != nil && t.Context().Err() == nil { // they were to go in line
			tasks = n.Submit(context.Background(), tenant, newTasks(3))
		}
		submitted <- tasks
	}()
	require.Eventually(t, func() bool { return n.InFlight() == 3 }, patience, 20*time.Millisecond)
	b.reopen(ready)
	stopped := make(chan struct{})
	go func() {
		n.stop()
		close(stopped)
	}()
	select {
	case <-stopped:
		require.Fail(t, "it stopped with a handoff under way")
	case <-time.After(100 * time.Millisecond):
	}
	unlock()
	tasks := <-submitted
	<-stopped
	for _, r := range tasks {
		require.NoError(t, r.Err)
	}
	assert.Zero(t, b.count(lease), "all were given back")
	other := b.start("b", dispatcher.Config{},
		func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	other.await(t, tasks, asyncflow.StatusFailed)
}
