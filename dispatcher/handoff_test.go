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
	"github.com/asyncflow/asyncflow/store"
)

// The tables of the type pipe.
const (
	ready = "tenant_acme.ready_pipe_1"
	lease = "tenant_acme.lease_pipe"
)

// shut has a table take no more rows.
func (b *bundle) shut(table string) {
	b.quietly(`ALTER TABLE ` + table + ` ADD CONSTRAINT shut CHECK (false) NOT VALID`)
}

func (b *bundle) reopen(table string) { b.quietly(`ALTER TABLE ` + table + ` DROP CONSTRAINT shut`) }

// lock keeps writers from a table until unlock is called.
func (b *bundle) lock(table string) (unlock func()) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	_, err = conn.Exec(b.t.Context(), `BEGIN`)
	require.NoError(b.t, err)
	_, err = conn.Exec(b.t.Context(), `LOCK TABLE `+table+` IN EXCLUSIVE MODE`)
	require.NoError(b.t, err)
	return func() { require.NoError(b.t, conn.Close(context.Background())) }
}

// waitsForLock waits until a statement waits for a lock.
func (b *bundle) waitsForLock() {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return b.count(`pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) > 0
	}, patience, 5*time.Millisecond)
}

func (b *bundle) count(table string) (n int) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	require.NoError(b.t, conn.QueryRow(b.t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

// last is an outcome after which nothing follows.
var last = asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Status: 200}

// handsOff waits until the node hands new tasks over: nothing else can be submitted while
// the ready table is shut.
func (n *node) handsOff(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		return n.Submit(t.Context(), tenant, newTasks(1))[0].Err == nil
	}, patience, 5*time.Millisecond)
	require.Eventually(t, func() bool { return n.inFlight() == 0 }, patience, time.Millisecond)
}

// startIdle starts a node that hands new tasks over, with the ready table shut, and tells of
// what it sends from then on.
func (b *bundle) startIdle() (*node, <-chan asyncflow.Delivery) {
	b.t.Helper()
	sent := make(chan asyncflow.Delivery, 100)
	n := b.start("a", dispatcher.Config{}, func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		sent <- d
		return last
	})
	b.shut(ready)
	n.handsOff(b.t)
	<-sent
	return n, sent
}

// On an idle node a new task never gets into the ready table: it is leased with its row,
// and delivered with what it was submitted with.
func TestHandoff(t *testing.T) {
	b := setup(t)
	n, sent := b.startIdle()

	tasks := newTasks(3)
	tasks[1].Options = asyncflow.Options{Retry: &asyncflow.RetryPolicy{MaxAttempts: 2}, Priority: asyncflow.Priority{1}}
	tasks[2].Options.Key, tasks[2].KeyWindow = "once", asyncflow.Duration(time.Hour)
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
		assert.WithinDuration(t, d.Lease.LeasedAt.Add(asyncflow.DefaultTimeout+store.LeaseMargin), d.Lease.Until, time.Millisecond)
	}
	again := n.Submit(t.Context(), tenant, tasks[2:])
	require.NoError(t, again[0].Err)
	assert.Equal(t, results[2].ID, again[0].ID)
	assert.Empty(t, sent, "the key stands for a task that was delivered")
}

// Of more tasks than there are slots, the first in order are handed over, the others wait
// in line, and whoever comes later doesn't overtake them.
func TestHandoffKeepsTheOrder(t *testing.T) {
	b := setup(t)
	b.exec(`DELETE FROM tenant_acme.endpoints WHERE stage = 'second'`) // of one endpoint all slots may be
	var mu sync.Mutex
	var got []asyncflow.TaskID
	answers := make(chan struct{})
	n := b.start("a", dispatcher.Config{Concurrency: 5}, func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
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
	held := n.inFlight()
	require.Equal(t, 4, held, "four fifths of the slots")
	for range 8 { // the node has slots left, but others are before these
		all = append(all, n.Submit(t.Context(), tenant, newTasks(1))...)
	}
	require.Equal(t, held, n.inFlight())
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

// For slots that are free again in a moment new tasks wait, and don't go in line. What is
// submitted meanwhile is written with them.
func TestHandoffWaitsForSlots(t *testing.T) {
	b := setup(t)
	answers := make(chan struct{})
	n := b.start("a", dispatcher.Config{Concurrency: 5}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		<-answers
		return last
	})
	answerAll := func() {
		for n.inFlight() > 0 {
			select {
			case answers <- struct{}{}:
			case <-time.After(time.Millisecond):
			}
		}
	}
	b.shut(ready) // nothing can go in line
	require.Eventually(t, func() bool {
		for _, r := range n.Submit(t.Context(), tenant, newTasks(4)) {
			if r.Err != nil { // the node doesn't know yet that none is in line
				answerAll()
				return false
			}
		}
		submitted := make(chan store.Submitted, 2)
		submit := func(count int) { submitted <- n.Submit(t.Context(), tenant, newTasks(count))[0] }
		go submit(1)
		for n.waiting() == 0 {
			select {
			case <-submitted: // this was held up for too long
				answerAll()
				return false
			default:
			}
		}
		go submit(2)
		time.Sleep(10 * time.Millisecond)
		answerAll()
		one, other := <-submitted, <-submitted
		answerAll()
		return one.Err == nil && other.Err == nil && // and they went together
			b.count(fmt.Sprintf(`(SELECT DISTINCT xmin::text FROM tenant_acme.task_pipe_1 WHERE id IN (%d, %d)) w`, one.ID.Number, other.ID.Number)) == 1
	}, patience, time.Millisecond)
}

// While it is being looked whether any are in line new tasks wait for what is found, if there
// is more of the type to do.
func TestHandoffWaitsForALook(t *testing.T) {
	b := setup(t)
	answers := make(chan struct{})
	n := b.start("a", dispatcher.Config{}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		<-answers
		return last
	})
	b.shut(ready) // nothing can go in line
	require.Eventually(t, func() bool { return n.Submit(t.Context(), tenant, newTasks(1))[0].Err == nil }, patience, 5*time.Millisecond)
	looking := func() (submitted <-chan error, end func()) {
		unlock := b.lock(ready)
		n.Wakeups.Announce(store.TypeKey{Tenant: tenant, Type: "pipe"}, n.Clock.Now())
		b.waitsForLock()
		done := make(chan error, 1)
		go func() { done <- n.Submit(t.Context(), tenant, newTasks(1))[0].Err }()
		return done, unlock
	}
	require.Eventually(t, func() bool {
		submitted, end := looking()
		waited := false
		for i := 0; !waited && i < 100; i++ { // it doesn't if it is held up until the look has taken long
			waited = n.waiting() > 0
			time.Sleep(time.Millisecond)
		}
		end()
		return <-submitted == nil && waited
	}, patience, time.Millisecond)

	close(answers)
	require.Eventually(t, func() bool { return n.inFlight() == 0 }, patience, time.Millisecond)
	time.Sleep(200 * time.Millisecond) // until it is a while ago
	submitted, end := looking()
	for range 20 {
		assert.Zero(t, n.waiting(), "the line is as quick")
		time.Sleep(time.Millisecond)
	}
	end()
	require.Error(t, <-submitted)
}

// Where another node has slots, too, they wait while deliveries of the type are in each
// other's way, as they take longer than they could, and take other slots when that takes long.
func TestHandoffWaitsWithSeveralNodes(t *testing.T) {
	b := setup(t)
	b.exec(`DELETE FROM tenant_acme.endpoints WHERE stage = 'second'`) // of one endpoint all slots may be
	b.start("b", dispatcher.Config{}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	took := make(chan time.Duration)
	n := b.start("a", dispatcher.Config{Concurrency: 32}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		time.Sleep(<-took)
		return last
	})
	require.Eventually(t, func() bool { return n.Dispatchers() == 2 }, patience, time.Millisecond)
	b.shut(ready) // nothing can go in line
	var all []store.Submitted
	submit := func(count int) (waited bool) {
		submitted := make(chan []store.Submitted, 1)
		go func() { submitted <- n.Submit(t.Context(), tenant, newTasks(count)) }()
		for {
			select {
			case results := <-submitted: // at first it isn't known that none is in line
				all = append(all, slices.DeleteFunc(results, notSubmitted)...)
				return waited
			case <-time.After(time.Millisecond):
				waited = waited || n.waiting() > 0
			}
		}
	}
	for _, after := range []time.Duration{0, 500 * time.Millisecond} {
		for len(all) < 1 {
			submit(1)
		}
		took <- after
		n.await(t, all, asyncflow.StatusFailed)
		all = nil
	}
	for len(all) < 14 {
		submit(14 - len(all))
	}
	waited := false
	for range 8 {
		waited = waited || submit(1) // it may be held up for longer than it would wait
	}
	assert.True(t, waited)
	assert.Greater(t, n.inFlight(), 14, "the other slots are there when it takes long")
	close(took)
	n.await(t, all, asyncflow.StatusFailed)
}

func notSubmitted(r store.Submitted) bool { return r.Err != nil }

// They don't for what no task that ends makes room for, nor for long.
func TestHandoffWaitsForSlotsAlone(t *testing.T) {
	b := setup(t)
	took := make(chan time.Duration)
	n := b.start("a", dispatcher.Config{Concurrency: 6}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
		<-time.After(<-took)
		return last
	})
	pipe := func() *store.Type {
		tt, err := n.Catalog.Type(tenant, "pipe")
		require.NoError(t, err)
		return tt
	}
	assert.True(t, n.soonRoom(pipe(), 4))
	assert.False(t, n.soonRoom(pipe(), 5), "more than one of several endpoints may have")
	b.exec(`DELETE FROM tenant_acme.endpoints WHERE stage = 'second'`)
	require.Eventually(t, func() bool { return n.soonRoom(pipe(), 5) }, patience, time.Millisecond)
	assert.False(t, n.soonRoom(pipe(), 6), "more than the type may have")

	b.exec(`UPDATE asyncflow.tenants SET quotas = '{"concurrency": 3}'`)
	require.Eventually(t, func() bool { return !n.soonRoom(pipe(), 4) }, patience, time.Millisecond, "more than the tenant may have")
	require.Eventually(t, func() bool { return n.soonRoom(pipe(), 3) }, patience, time.Millisecond)
	_, err := n.Pause(t.Context(), tenant, "pipe", "")
	require.NoError(t, err)
	assert.False(t, n.soonRoom(pipe(), 1), "it is paused")
	_, err = n.Resume(t.Context(), tenant, "pipe", 0)
	require.NoError(t, err)

	for _, slow := range []bool{true, false} {
		for range 40 {
			all := n.submit(t, 1)
			if slow {
				took <- 150 * time.Millisecond
			} else {
				took <- 0
			}
			n.await(t, all, asyncflow.StatusFailed)
			if n.soonRoom(pipe(), 1) != slow {
				break
			}
		}
		assert.Equal(t, !slow, n.soonRoom(pipe(), 1), "slow: %t", slow)
	}
}

// Tasks that aren't due, and those of a type that has to be asked for more than slots, wait
// in line.
func TestNoHandoff(t *testing.T) {
	for name, hinder := range map[string]func(*testing.T, *bundle, *node, []asyncflow.NewTask){
		"a delay": func(_ *testing.T, _ *bundle, _ *node, tasks []asyncflow.NewTask) {
			tasks[0].Delay = asyncflow.Duration(time.Second)
		},
		"a limit of the endpoint": func(t *testing.T, b *bundle, n *node, _ []asyncflow.NewTask) {
			b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = 3`)
			require.Eventually(t, func() bool {
				pipe, err := n.Catalog.Type(tenant, "pipe")
				return err == nil && pipe.Endpoints("first")[0].Limits.MaxInFlight == 3
			}, patience, time.Millisecond)
		},
		"an interval of the schedule": func(t *testing.T, _ *bundle, n *node, _ []asyncflow.NewTask) {
			n.put(t, func(tt *asyncflow.TaskType) { tt.ScheduleInterval = asyncflow.Duration(time.Second) })
		},
		"a pause": func(t *testing.T, _ *bundle, n *node, _ []asyncflow.NewTask) {
			_, err := n.Pause(t.Context(), tenant, "pipe", "")
			require.NoError(t, err)
		},
		"a stop": func(_ *testing.T, _ *bundle, n *node, _ []asyncflow.NewTask) { n.halt() },
		"others in line": func(t *testing.T, b *bundle, n *node, _ []asyncflow.NewTask) {
			_, silent := silently(t, b)
			silent.submit(t, 1)
			conn, err := pgx.Connect(t.Context(), b.url)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
			_, err = conn.Exec(t.Context(), `BEGIN`)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `SELECT FROM `+ready+` FOR UPDATE`) // so that nobody can lease it
			require.NoError(t, err)
			n.Wakeups.Announce(store.TypeKey{Tenant: tenant, Type: "pipe"}, n.Clock.Now())
		},
		"a missing endpoint": func(t *testing.T, b *bundle, n *node, _ []asyncflow.NewTask) {
			b.exec(`DELETE FROM tenant_acme.endpoints`)
			require.Eventually(t, func() bool {
				pipe, err := n.Catalog.Type(tenant, "pipe")
				return err == nil && !pipe.Serves("first")
			}, patience, time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			n := b.start("a", dispatcher.Config{}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
			b.shut(ready)
			n.handsOff(t)
			b.shut(lease)
			b.reopen(ready)
			tasks := newTasks(1)
			hinder(t, b, n, tasks)
			for range 20 { // the news of the change may have had the type looked at meanwhile
				require.NoError(t, n.Submit(t.Context(), tenant, tasks)[0].Err, "it has no lease")
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
}

// A tenant has no more tasks at once than its quota, however many submit at once, of
// whatever types.
func TestHandoffWithinTheTenantsQuota(t *testing.T) {
	b := setup(t)
	b.exec(`UPDATE asyncflow.tenants SET quotas = '{"concurrency": 3}'`)
	var now, most atomic.Int32
	n := b.start("a", dispatcher.Config{}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome {
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
		spec.Name, e.Type, e.ID = name, name, fmt.Sprintf("0190a6f0-0000-7000-8000-0000000001%02d", i)
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
	n := b.start("a", dispatcher.Config{}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	b.shut(ready)
	n.handsOff(t)
	b.shut(lease)
	for _, r := range n.Submit(t.Context(), tenant, newTasks(5)) {
		assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(r.Err))
	}
	assert.Zero(t, n.inFlight())
	b.reopen(lease)
	n.handsOff(t)
}

// A commit that takes longer than the margin of a lease costs no attempt: the task is sent
// when there is time enough for it.
func TestHandoffThatCommitsLate(t *testing.T) {
	b := setup(t)
	n, sent := b.startIdle()
	b.reopen(ready)
	unlock := b.lock(lease)
	submitted := make(chan []store.Submitted, 1)
	go func() { submitted <- n.Submit(context.Background(), tenant, newTasks(1)) }()
	b.waitsForLock()
	time.Sleep(store.LeaseMargin + 100*time.Millisecond)
	unlock()
	n.await(t, <-submitted, asyncflow.StatusFailed)
	d := <-sent
	assert.Equal(t, asyncflow.DefaultTimeout, d.Timeout)
	assert.Equal(t, 1, d.Lease.Attempt, "it was given back, or the submit tried again, without an attempt")
}

// A stop waits for what is being handed over, and gives it back to the others.
func TestStopDuringAHandoff(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	b.shut(ready)
	n.handsOff(t)
	b.reopen(ready)

	unlock := b.lock(lease)
	submitted := make(chan []store.Submitted, 1)
	go func() { submitted <- n.Submit(context.Background(), tenant, newTasks(3)) }()
	require.Eventually(t, func() bool { return n.inFlight() == 3 }, patience, time.Millisecond)
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
	other := b.start("b", dispatcher.Config{}, func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return last })
	other.await(t, tasks, asyncflow.StatusFailed)
}

// startWithOneSlot starts a node of one slot that tells of what it sends, and waits for what
// comes of it.
func (b *bundle) startWithOneSlot() (*node, <-chan asyncflow.Delivery, chan<- asyncflow.Outcome) {
	b.t.Helper()
	sent, answers := make(chan asyncflow.Delivery), make(chan asyncflow.Outcome)
	return b.start("a", dispatcher.Config{Concurrency: 1}, func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		sent <- d
		return <-answers
	}), sent, answers
}

// A task that goes on with its next stage keeps its slot, though it be the only one: the
// lease of that stage is written where that of the last one ends.
func TestHandoffToTheNextStage(t *testing.T) {
	b := setup(t)
	n, sent, answers := b.startWithOneSlot()
	task := newTasks(1)
	task[0].Options.Priority = asyncflow.Priority{0, 5}
	for _, output := range []string{"", `{"made":1}`} {
		ended, want := done, string(task[0].Context)
		if output != "" {
			ended.Output, want = json.RawMessage(output), output
		}
		require.Eventually(t, func() bool { // else there was just a look
			results := n.Submit(t.Context(), tenant, task)
			require.NoError(t, results[0].Err)
			<-sent
			answers <- ended
			second := (<-sent).Lease
			handed := b.count(`tenant_acme.lease_pipe l JOIN tenant_acme.journal_pipe_1 j ON j.id = l.id AND j.xmin::text = l.xmin::text`)
			answers <- done
			n.await(t, results, asyncflow.StatusSucceeded)
			assert.Equal(t, []any{results[0].ID, "second", 1, 2, want, task[0].Options},
				[]any{second.ID, second.Stage, second.Attempt, second.Seq, string(second.Context), second.Options})
			return handed == 1
		}, patience, time.Millisecond)
	}
	require.Eventually(t, func() bool { return n.load() == 0 && n.inFlight() == 0 }, patience, time.Millisecond)
}

// Those in line are before a task that enters its next stage.
func TestHandoffToTheNextStageKeepsTheOrder(t *testing.T) {
	b := setup(t)
	n, sent, answers := b.startWithOneSlot()
	results := n.submit(t, 3)
	for _, stage := range []string{"first", "second"} {
		for _, r := range results {
			l := (<-sent).Lease
			assert.Equal(t, []any{r.ID, stage}, []any{l.ID, l.Stage})
			answers <- done
		}
	}
	n.await(t, results, asyncflow.StatusSucceeded)
}
