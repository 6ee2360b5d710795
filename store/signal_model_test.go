package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// signalTask is what a task with a stage that waits should be like.
type signalTask struct {
	id      asyncflow.TaskID
	key     string
	status  asyncflow.Status
	stage   string
	attempt int
	context string          // of its stage
	lease   asyncflow.Lease // the latest
	depth   int             // how many tasks in a row started one another
}

// sentSignal is a signal that no task took.
type sentSignal struct {
	to   asyncflow.TaskID // zero: to a key
	key  string
	data string
}

// spawnedList is what an attempt started, and what isn't made yet.
type spawnedList struct {
	parent *signalTask
	tasks  []asyncflow.SpawnedTask
}

// signalMachine drives the store and its models through the same steps. Nothing is followed up but
// in a step of its own.
type signalMachine struct {
	nodePair
	t       *rapid.T
	pipe    *store.Type
	tasks   map[asyncflow.TaskID]*signalTask
	order   []*signalTask
	keys    map[string]*signalTask
	signals []sentSignal // in the order in which they were sent
	spawned []spawnedList
	named   int // contexts, data and idempotency keys
}

// Random steps and crashes lead tasks that wait for signals, and start one another, where a simple
// model says: each signal counts once and in its order, and no task that was started is lost or
// made twice.
func TestSignalModel(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for lane := range longform.Size(1, 5) {
		t.Run(fmt.Sprint(lane), func(t *testing.T) { eachSet(t, holdSignalsAgainstModel) })
	}
}

func holdSignalsAgainstModel(t *testing.T, b *bundle) {
	b.byHand()
	b.SetChunks(2, 2, 2)
	spec := patient()
	spec.Stages = []asyncflow.Stage{spec.Stages[0], waiting("wait", "approved"), spec.Stages[1]}
	spec.Stages[0].Spawn = []string{"pipe"}
	spec.Stages[0].Next = []string{"wait"}
	spec.Stages[1].Wait.OnTimeout = &asyncflow.StageFailure{Next: "second"}
	spec.Stages[2].Next = []string{"first", "wait", asyncflow.NextFinish}
	b.told()
	b.put(spec.WithDefaults())
	nodes := newNodePair(t, b)
	nodes.mortal.SetChunks(2, 2, 2)
	checkSequences(t, 8, func(rt *rapid.T) {
		m := &signalMachine{nodePair: nodes, t: rt, pipe: b.known(),
			tasks: map[asyncflow.TaskID]*signalTask{}, keys: map[string]*signalTask{}}
		b.clear()
		b.exec(`TRUNCATE tenant_acme.signals, tenant_acme.signal_waits, tenant_acme.spawns,
			tenant_acme.outbox, tenant_acme.notifications, tenant_acme.idempotency_keys`)
		rt.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "signal": m.signal, "signal again": m.signal,
			"signal more": m.signal, "work": m.work, "work on": m.work,
			"follow up": m.followUp, "time up": m.timeUp,
			"expire": m.expire, "cancel": m.cancel, "redrive": m.redrive, "": m.check,
		})
		m.finish()
	})
}

// name returns a new document.
func (m *signalMachine) name() string {
	m.named++
	return fmt.Sprintf(`"%d"`, m.named)
}

func (m *signalMachine) someKey(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(t, "key")
}

// pick returns a task for which something is true.
func (m *signalMachine) pick(t *rapid.T, is func(*signalTask) bool) *signalTask {
	all := slices.DeleteFunc(slices.Clone(m.order), func(w *signalTask) bool { return !is(w) })
	if len(all) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(all).Draw(t, "task")
}

func (m *signalMachine) add(w *signalTask) {
	w.status, w.stage, w.attempt = asyncflow.StatusPending, "first", 1
	m.tasks[w.id] = w
	m.order = append(m.order, w)
	if w.key != "" {
		m.keys[w.key] = w
	}
}

func (m *signalMachine) submit(t *rapid.T) {
	w := &signalTask{context: m.name(), key: m.someKey(t)}
	if m.keys[w.key] != nil {
		t.Skip("a task has the key")
	}
	task := newTask(w.context)
	task.Options.Key = w.key
	task.Options.OnFinal = shop()
	w.id = m.b.submit(task)[0].ID
	m.add(w)
}

// signal sends a signal to a task or a key, and sends it again if there is no answer.
func (m *signalMachine) signal(t *rapid.T) {
	s := sentSignal{key: m.someKey(t), data: m.name()}
	signal := asyncflow.Signal{Name: "approved", Data: json.RawMessage(s.data),
		IdempotencyKey: s.data}
	to := m.keys[s.key]
	if s.key != "" {
		signal.Type, signal.Key = m.pipe.Name, s.key
	} else {
		to = m.pick(t, func(*signalTask) bool { return true })
		s.to, signal.Task = to.id, to.id.String()
	}
	b, end := m.node(t)
	_, err := b.SendSignal(t.Context(), tenant, signal)
	end()
	for deadline := time.Now().Add(patience); isFault(err); {
		require.True(t, time.Now().Before(deadline), "%v", err)
		_, err = m.b.SendSignal(t.Context(), tenant, signal)
	}
	if to != nil && to.status.Final() {
		require.Equal(t, asyncflow.CodeTaskOver, asyncflow.CodeOf(err), "%v", err)
		return
	}
	require.NoError(t, err)
	m.signals = append(m.signals, s)
	if rapid.Bool().Draw(t, "again") {
		sent, err := m.b.SendSignal(t.Context(), tenant, signal)
		require.NoError(t, err)
		require.True(t, sent.Existing)
	}
}

// isFault reports whether an error says nothing about what was asked for.
func isFault(err error) bool {
	return err != nil && asyncflow.CodeOf(err) != asyncflow.CodeTaskOver
}

// work leases all that is in line, and lets some attempts end.
func (m *signalMachine) work(t *rapid.T) {
	m.lease()
	for _, w := range m.order {
		if w.status == asyncflow.StatusRunning && rapid.Bool().Draw(t, "ends") {
			m.settle(t, w)
		}
	}
}

// lease leases all that is in line; what comes to the wait begins to wait, as in a dispatcher.
func (m *signalMachine) lease() {
	pending := 0
	for _, w := range m.order {
		if w.status == asyncflow.StatusPending {
			pending++
		}
	}
	for _, l := range m.b.leaseAll(m.pipe, pending) {
		w := m.tasks[l.ID]
		require.NotNil(m.t, w, "%s is none of ours", l.ID)
		require.Equal(m.t, []any{asyncflow.StatusPending, w.stage, w.attempt, w.context},
			[]any{w.status, l.Stage, l.Attempt, string(l.Context)}, l.ID)
		w.status, w.lease = asyncflow.StatusRunning, l
		if wait := m.pipe.WaitOf(l.Stage); wait != nil {
			m.report(w, asyncflow.Outcome{Kind: asyncflow.OutcomeAwaits, Awaits: wait})
			w.status = asyncflow.StatusWaiting
		}
	}
}

// report settles the lease of a task, perhaps over a connection that is cut.
func (m *signalMachine) report(w *signalTask, o asyncflow.Outcome) {
	b, end := m.node(m.t)
	r := b.settle(m.pipe, w.lease, o)
	end()
	require.NoError(m.t, r.Err)
	require.False(m.t, r.Stale, "%s holds its lease", w.id)
}

// settle makes an attempt fail, or be done: then it starts tasks and chooses its way.
func (m *signalMachine) settle(t *rapid.T, w *signalTask) {
	if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
		m.report(w, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no"})
		m.fail(w)
		return
	}
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(m.name())}
	next := "wait"
	if w.stage == "second" {
		next = rapid.SampledFrom([]string{"first", "wait", ""}).Draw(t, "next")
		o.Next, o.Finish = next, next == ""
	} else if w.depth < asyncflow.MaxDepth {
		for range rapid.IntRange(0, 3).Draw(t, "started") {
			o.Spawn = append(o.Spawn, asyncflow.SpawnedTask{Type: m.pipe.Name,
				Context: json.RawMessage(m.name()), Key: m.someKey(t)})
		}
	}
	require.NoError(t, m.pipe.CheckSpawn(w.lease, o))
	m.end(w, o, next)
}

// end lets an attempt be done; next is "" at the end of the task.
func (m *signalMachine) end(w *signalTask, o asyncflow.Outcome, next string) {
	m.report(w, o)
	if len(o.Spawn) > 0 {
		m.spawned = append(m.spawned, spawnedList{w, o.Spawn})
	}
	w.context = string(o.Output)
	if next == "" {
		w.status = asyncflow.StatusSucceeded
		return
	}
	w.goTo(next)
}

func (w *signalTask) goTo(stage string) {
	w.status, w.stage, w.attempt = asyncflow.StatusPending, stage, 1
}

func (m *signalMachine) fail(w *signalTask) {
	if w.attempt >= modelAttempts {
		w.status = asyncflow.StatusFailed
		return
	}
	w.status = asyncflow.StatusPending
	w.attempt++
}

// expire lets a lease run out.
func (m *signalMachine) expire(t *rapid.T) {
	w := m.pick(t, func(w *signalTask) bool { return w.status == asyncflow.StatusRunning })
	m.b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE id = $1`,
		w.id.Number)
	n, err := m.b.Rescue(t.Context(), m.pipe)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	m.fail(w)
}

func (m *signalMachine) cancel(t *rapid.T) {
	w := m.pick(t, func(w *signalTask) bool { return !w.status.Final() })
	_, err := m.b.Cancel(t.Context(), tenant, w.id, "no more")
	require.NoError(t, err)
	w.status = asyncflow.StatusCancelled
}

// redrive makes a task go on that failed or was cancelled: it takes the signals that are kept.
func (m *signalMachine) redrive(t *rapid.T) {
	w := m.pick(t, func(w *signalTask) bool {
		return w.status == asyncflow.StatusFailed || w.status == asyncflow.StatusCancelled
	})
	_, err := m.b.Redrive(t.Context(), tenant, w.id, store.Redrive{Stage: w.stage})
	require.NoError(t, err)
	w.goTo(w.stage)
}

// followUp follows up all that there is, perhaps at first on a node that dies meanwhile.
func (m *signalMachine) followUp(t *rapid.T) {
	if rapid.Bool().Draw(t, "dies") {
		m.line.arm(rapid.IntRange(1, 30).Draw(t, "at statement"),
			rapid.Bool().Draw(t, "answer lost"), true)
		for more, err := true, error(nil); more && err == nil; {
			more, err = m.mortal.FollowUp(t.Context(), tenant)
		}
		m.line.mend()
	}
	m.quiet()
	m.start()
	m.take(false)
	m.check(t)
}

// timeUp ends the time of all waits: tasks for which there is no signal go on without one.
func (m *signalMachine) timeUp(t *rapid.T) {
	m.quiet()
	m.start()
	m.take(false)
	m.b.exec(`UPDATE tenant_acme.signal_waits SET until = until - interval '2 h'`)
	_, _, err := m.b.SweepFollowUps(t.Context(), tenant)
	require.NoError(t, err)
	m.quiet()
	m.take(true)
	m.check(t)
}

// quiet follows up until nothing is left. Postgres may not have noticed yet that a node died.
func (m *signalMachine) quiet() {
	for deadline := time.Now().Add(patience); ; {
		m.b.exec(`UPDATE tenant_acme.outbox SET due = now()
			WHERE seq = ANY (ARRAY(SELECT seq FROM tenant_acme.outbox FOR UPDATE SKIP LOCKED))`)
		m.b.followUp()
		if m.b.count(`SELECT count(*) FROM tenant_acme.outbox`) == 0 {
			return
		}
		require.True(m.t, time.Now().Before(deadline), "follow-ups don't end")
	}
}

// start makes the models of the tasks that attempts started. Of tasks with one key, whichever was
// made first stands for all.
func (m *signalMachine) start() {
	for _, list := range m.spawned {
		for _, s := range list.tasks {
			first := m.keys[s.Key]
			id, made := m.made(list.parent.id, string(s.Context))
			require.False(m.t, made && first != nil, "%s is made, but %q has a task", id, s.Key)
			require.True(m.t, made || s.Key != "", "%s is not made", s.Context)
			if made {
				m.add(&signalTask{id: id, context: string(s.Context), key: s.Key,
					depth: list.parent.depth + 1})
			}
		}
	}
	for _, list := range m.spawned {
		for _, s := range list.tasks {
			require.True(m.t, s.Key == "" || m.keys[s.Key] != nil, "no task has %q", s.Key)
		}
	}
	m.spawned = nil
}

// made returns the id of the task that a task started with a context.
func (m *signalMachine) made(parent asyncflow.TaskID, context string) (asyncflow.TaskID, bool) {
	all, err := m.b.Tasks(m.t.Context(), tenant,
		store.Filter{Type: m.pipe.Name, Parent: parent, Limit: 1000})
	require.NoError(m.t, err)
	for _, one := range all {
		task, err := m.b.Task(m.t.Context(), tenant, one.ID)
		require.NoError(m.t, err)
		if string(task.Context) == context {
			return one.ID, true
		}
	}
	return asyncflow.TaskID{}, false
}

// take makes the models that wait take their oldest signals. Without one they wait on, or go on
// when the time is up.
func (m *signalMachine) take(timeUp bool) {
	for _, w := range m.order {
		if w.status != asyncflow.StatusWaiting {
			continue
		}
		i := slices.IndexFunc(m.signals, func(s sentSignal) bool {
			return s.to == w.id || s.key != "" && s.key == w.key
		})
		if i >= 0 {
			w.context = m.signals[i].data
			m.signals = slices.Delete(m.signals, i, i+1)
		}
		if i >= 0 || timeUp {
			w.goTo("second")
		}
	}
}

// check compares the store with the models.
func (m *signalMachine) check(t *rapid.T) {
	require.Empty(t, m.b.wrongEnds())
	m.b.checkTokens(m.pipe.Name)
	for _, w := range m.order {
		task, err := m.b.Task(t.Context(), tenant, w.id)
		require.NoError(t, err)
		require.Equal(t, []any{w.status, w.stage, w.attempt},
			[]any{task.Status, task.Stage, task.Attempt}, w.id)
	}
	require.Equal(t, len(m.signals), m.b.count(`SELECT count(*) FROM tenant_acme.signals
		WHERE NOT taken`), "signals that no task has taken")
}

// finish drives all tasks to their ends: none may wait for ever, and none is left that the model
// doesn't know.
func (m *signalMachine) finish() {
	for round := 0; ; round++ {
		require.Less(m.t, round, 100, "tasks don't end")
		m.timeUp(m.t)
		m.lease()
		live := false
		for _, w := range m.order {
			live = live || !w.status.Final()
			if w.status == asyncflow.StatusRunning {
				next := map[string]string{"first": "wait"}[w.stage]
				m.end(w, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Finish: next == "",
					Output: json.RawMessage(m.name())}, next)
			}
		}
		if !live {
			break
		}
	}
	m.b.checkTallies(m.pipe.Name)
	require.Equal(m.t, len(m.order), m.b.count(m.b.at(m.pipe.End,
		`SELECT count(*) FROM {task} WHERE type = {number}`)))
}
