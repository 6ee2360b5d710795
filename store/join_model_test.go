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

// joinTask is what a task should be like that waits for tasks that it started, or for the items of
// its fan-out, or is one of these.
type joinTask struct {
	id       asyncflow.TaskID
	status   asyncflow.Status
	reason   asyncflow.WaitReason // for which it waits
	stage    int
	attempt  int
	seq      int        // of its token row; if final, of its last journal row
	contexts [2]string  // what its stages are sent with
	output   string     // of a task that succeeded
	depth    int        // how many tasks in a row started one another
	part     *joinGroup // of which it is
	own      *joinGroup // the latest tasks for which it waits
	changed  bool       // it got a priority, which goes down
	left     leftover
	leases   []asyncflow.Lease // all that were ever given out
}

// joinGroup is what the tasks should be like for which a task waits in one stage.
type joinGroup struct {
	parent   *joinTask
	seq      int // names it
	waits    int // seq of the parent's row in wait
	stage    int
	items    bool // they are the children of a fan-out
	join     asyncflow.Join
	finish   bool // the parent ends after them
	list     []asyncflow.SpawnedTask
	children map[int]*joinTask // by their index in the list
	extra    int               // that were redriven by themselves, whatever max_parallel is
	again    bool              // the parent was redriven: tasks that didn't succeed may be
	paused   bool
	failed   bool // too many failed before the step
}

func (g *joinGroup) key() familyKey { return familyKey{g.parent.id, g.seq} }

// waitedFor reports whether the parent waits for the group.
func (g *joinGroup) waitedFor() bool {
	w := g.parent
	return w.own == g && w.reason == asyncflow.WaitChildren && w.seq == g.waits
}

// count counts the tasks that were made by their status; live ones are under "".
func (g *joinGroup) count() map[asyncflow.Status]int {
	n := map[asyncflow.Status]int{}
	for _, c := range g.children {
		if c.status.Final() {
			n[c.status]++
		} else {
			n[""]++
		}
	}
	return n
}

// tooMany reports whether too many failed or were cancelled.
func (g *joinGroup) tooMany() bool {
	n := g.count()
	return g.join.OnChildFailure.TooMany(n[asyncflow.StatusFailed]+n[asyncflow.StatusCancelled],
		len(g.list))
}

// above returns the groups that keep a task from beginning when they are paused or over.
func (w *joinTask) above() (all []*joinGroup) {
	for g := w.part; g != nil; g = g.parent.part {
		all = append(all, g)
	}
	return all
}

// paused reports whether a group above is paused.
func (w *joinTask) paused() bool {
	return slices.ContainsFunc(w.above(), func(g *joinGroup) bool {
		return g.paused && g.waitedFor()
	})
}

// halted reports whether a group above is over or about to be.
func (w *joinTask) halted() bool {
	return slices.ContainsFunc(w.above(), func(g *joinGroup) bool {
		return !g.waitedFor() || g.failed || g.tooMany()
	})
}

// reopens reports whether a redrive from a stage goes on with the tasks for which a task waited
// there: it ended while it waited, or they are items, which no worker names anew.
func (w *joinTask) reopens(stage int) bool {
	return w.own != nil && w.own.stage == stage && (w.own.items || w.own.waits == w.seq)
}

func (w *joinTask) redrivable() bool {
	return w.status == asyncflow.StatusFailed || w.status == asyncflow.StatusCancelled
}

// joinMachine drives the store and its models through the same steps. Nothing is followed up but in
// a step of its own: then each new row of a journal needs a reason.
type joinMachine struct {
	treeMachine
	order  []*joinTask
	byName map[string]*joinTask
	groups map[familyKey]*joinGroup
	// redriving lists the groups that FollowUp redrives, with how many are still to be redriven.
	redriving map[familyKey]int
	// priorities are how many were given, and beats how many checkpoints were sent.
	priorities, beats int
}

// Random steps and crashes lead trees of tasks that start others and wait for them, and of items of
// fan-outs, where a simple model says: each task is made once and counts once, none begins below a
// task that is over or paused, the results come in the order of the list, an attempt gets the
// checkpoint that an earlier one of its stage left, and no task waits for ever.
func TestJoinModel(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for lane := range modelLanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) { eachSet(t, holdJoinsAgainstModel) })
	}
}

func holdJoinsAgainstModel(t *testing.T, b *bundle) {
	b.byHand()
	b.SetChunks(2, 2, 2)
	spec, one := patient(), base()
	one.Stages[0].Retry, one.Stages[0].Timeout = spec.Stages[0].Retry, spec.Stages[0].Timeout
	spec.Stages[0].Next = []string{"second", asyncflow.NextFinish}
	spec.Stages[0].OnFailure = &asyncflow.StageFailure{Next: "second"}
	for i := range spec.Stages {
		spec.Stages[i].Spawn = joinTypes
	}
	spec.OnFinal = b.told()
	one.OnFinal = spec.OnFinal
	b.put(one)
	b.put(spec)
	b.put(spreading(spec))
	nodes := newNodePair(t, b)
	nodes.mortal.SetChunks(2, 2, 2)
	checkSequences(t, 8, func(rt *rapid.T) {
		m := &joinMachine{treeMachine: treeMachine{nodePair: nodes, t: rt, types: joinTypes},
			byName: map[string]*joinTask{}, groups: map[familyKey]*joinGroup{}}
		m.clear()
		b.exec(`DELETE FROM tenant_acme.spawns; DELETE FROM tenant_acme.checkpoints`)
		m.submit(rt)
		m.submit(rt)
		m.work(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"submit": m.submit, "work": m.work, "work on": m.work, "work more": m.work,
			"expire": m.expire, "cancel": m.cancel, "redrive": m.redrive, "redrive more": m.redrive,
			"pause": m.pause, "resume": m.resume, "roll": m.roll, "sweep": m.sweep,
			"priority": m.priority, "priority of a parent": m.priorityOfParent,
			"checkpoint": m.heartbeat, "checkpoint of a lost attempt": m.loseWithCheckpoint,
			"follow up": m.followUp, "follow up more": m.followUp, "die": m.die,
			"quiet": m.quiet, "": m.check,
		})
		m.finish()
	})
}

// pick picks a task for which something is true.
func (m *joinMachine) pick(t *rapid.T, is func(*joinTask) bool) *joinTask {
	all := slices.DeleteFunc(slices.Clone(m.order), func(w *joinTask) bool { return !is(w) })
	if len(all) == 0 {
		t.Skip("there is none")
	}
	return rapid.SampledFrom(all).Draw(t, "task")
}

func (m *joinMachine) add(w *joinTask) {
	w.status, w.attempt, w.seq = asyncflow.StatusPending, 1, 1
	m.order = append(m.order, w)
	m.byName[w.id.String()] = w
}

func (m *joinMachine) submit(t *rapid.T) {
	name := rapid.SampledFrom([]string{"pipe", "pipe", "fan"}).Draw(t, "type")
	context := m.context(t, name, fmt.Sprint(len(m.order)))
	b, end := m.node(t)
	task := asyncflow.NewTask{Type: name, Context: json.RawMessage(context)}
	got := b.Submit(t.Context(), tenant, []asyncflow.NewTask{task})[0]
	end()
	require.NoError(t, got.Err)
	m.add(&joinTask{id: got.ID, contexts: [2]string{context}})
}

// lease leases all that is pending. What is below a task that is paused or over doesn't begin: the
// next check finds it parked or cancelled.
func (m *joinMachine) lease() {
	for _, name := range m.types {
		kind, pending := m.kind(name), 0
		for _, w := range m.order {
			if w.id.Type == name && w.status == asyncflow.StatusPending {
				pending++
			}
		}
		if pending == 0 {
			continue
		}
		var all []asyncflow.Lease
		for until := time.Now().Add(patience); len(all) < pending; {
			require.True(m.t, time.Now().Before(until), "pending tasks are not to be had")
			all = append(all, m.b.lease(kind, pending-len(all))...)
		}
		begun, err := m.b.ParkHalted(m.b.t.Context(), kind, all)
		require.NoError(m.t, err)
		for _, l := range begun {
			m.begin(kind, l)
		}
	}
	m.check(m.t)
}

func (m *joinMachine) begin(kind *store.Type, l asyncflow.Lease) {
	w := m.byName[l.ID.String()]
	require.NotNil(m.t, w, "%s is none of ours", l.ID)
	require.Equal(m.t, []any{asyncflow.StatusPending, w.stage, w.attempt, w.seq,
		w.contexts[w.stage], w.checkpoint()}, []any{w.status, kind.StageIndex(l.Stage), l.Attempt,
		l.Seq, string(l.Context), string(l.Checkpoint)}, l.ID)
	for _, g := range w.above() {
		n := g.count()
		failed := n[asyncflow.StatusFailed] + n[asyncflow.StatusCancelled] -
			m.redriving[g.key()]
		require.True(m.t, g.waitedFor() && !g.paused &&
			!g.join.OnChildFailure.TooMany(failed, len(g.list)),
			"%s begins, but those of %s don't", l.ID, g.parent.id)
	}
	w.status = asyncflow.StatusRunning
	w.leases = append(w.leases, l)
}

// lease returns the latest lease.
func (w *joinTask) lease() asyncflow.Lease { return w.leases[len(w.leases)-1] }

// work leases all that is pending, and lets some attempts end.
func (m *joinMachine) work(t *rapid.T) {
	m.lease()
	for _, w := range slices.Clone(m.order) {
		if w.status == asyncflow.StatusRunning && often(t, "ends") {
			m.report(w, m.outcome(t, w))
		}
	}
}

func often(t *rapid.T, what string) bool {
	return rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, what)
}

// outcome draws how an attempt ends.
func (m *joinMachine) outcome(t *rapid.T, w *joinTask) asyncflow.Outcome {
	if w.spreads() {
		return m.spread(t, w)
	}
	o := asyncflow.Outcome{Kind: rapid.SampledFrom([]asyncflow.OutcomeKind{asyncflow.OutcomeDone,
		asyncflow.OutcomeDone, asyncflow.OutcomeDone, asyncflow.OutcomeDone,
		asyncflow.OutcomeDone, asyncflow.OutcomeFailed, asyncflow.OutcomeRejected,
		asyncflow.OutcomeSnoozed}).
		Draw(t, "outcome")}
	if o.Kind == asyncflow.OutcomeSnoozed {
		o.FirstSent = m.b.Clock.Now()
	}
	if o.Kind != asyncflow.OutcomeDone {
		o.Error = "no"
		return o
	}
	if w.id.Type == "pipe" {
		o.Finish = w.stage == 0 && rapid.IntRange(0, 3).Draw(t, "finish") == 0
		if w.stage == 0 && !o.Finish && rapid.Bool().Draw(t, "names the next stage") {
			o.Next = "second"
		}
	}
	if w.id.Type != "base" && w.depth < 3 && len(m.order) < 60 && often(t, "joins") {
		m.join(t, w, &o)
		return o
	}
	if rapid.Bool().Draw(t, "with output") {
		o.Output = json.RawMessage(fmt.Sprintf(`"%s.%d"`, w.id, w.seq))
	}
	return o
}

// join makes an outcome start tasks and wait for them.
func (m *joinMachine) join(t *rapid.T, w *joinTask, o *asyncflow.Outcome) {
	for i := range rapid.SampledFrom([]int{3, 2, 4, 1, 0}).Draw(t, "started") {
		name := rapid.SampledFrom(joinTypes).Draw(t, "of type")
		o.Spawn = append(o.Spawn,
			spawned(name, m.context(t, name, fmt.Sprintf("%s.%d.%d", w.id, w.seq, i))))
	}
	join := asyncflow.Join{
		OnChildFailure: rapid.SampledFrom([]asyncflow.ChildFailure{{},
			{Policy: asyncflow.AllSettled}, {Policy: asyncflow.Tolerate, Count: 1}}).
			Draw(t, "on child failure"),
		MaxParallel: rapid.SampledFrom([]int{0, 2}).Draw(t, "most in parallel"),
		Results: rapid.SampledFrom([]asyncflow.ResultsForm{"", asyncflow.ResultsSettled}).
			Draw(t, "results")}
	require.NoError(t, o.Joins(&join))
	require.NoError(t, m.kind(w.id.Type).CheckSpawn(w.lease(), *o))
}

// report settles the lease of a task, perhaps over a connection that is cut.
func (m *joinMachine) report(w *joinTask, o asyncflow.Outcome) {
	b, end := m.node(m.t)
	r := b.settle(m.kind(w.id.Type), w.lease(), o)
	end()
	require.NoError(m.t, r.Err)
	require.False(m.t, r.Stale, "%s seq %d holds its lease", w.id, w.seq)
	w.end(o)
	switch {
	case o.Join != nil:
		m.wait(w, joinGroup{join: *o.Join, finish: o.Finish, list: o.Spawn})
	case o.FannedOut != nil:
		m.wait(w, w.itemsOf(*o.FannedOut))
	}
}

// wait makes a task wait for others.
func (m *joinMachine) wait(w *joinTask, g joinGroup) {
	g.parent, g.seq, g.waits, g.stage = w, w.seq, w.seq, w.stage
	g.children = map[int]*joinTask{}
	w.own = &g
	m.groups[g.key()] = w.own
}

// end lets the current attempt end.
func (w *joinTask) end(o asyncflow.Outcome) {
	w.seq++
	switch {
	case o.Kind == asyncflow.OutcomeDone && o.Join != nil:
		w.left = leftover{}
		w.status, w.reason = asyncflow.StatusWaiting, asyncflow.WaitChildren
	case o.Kind == asyncflow.OutcomeFannedOut:
		w.status, w.reason = asyncflow.StatusWaiting, asyncflow.WaitChildren
	case o.Kind == asyncflow.OutcomeDone || o.Kind == asyncflow.OutcomeJoined:
		w.pass(string(o.Output), o.Finish)
	case o.Kind == asyncflow.OutcomeCancelled:
		w.final(asyncflow.StatusCancelled)
	case o.Kind == asyncflow.OutcomeSnoozed:
		w.status = asyncflow.StatusPending
	case o.Kind == asyncflow.OutcomeRejected || w.attempt == modelAttempts:
		w.fail()
	default:
		w.attempt++
		w.status = asyncflow.StatusPending
	}
}

// pass makes a task go on after a stage that is done.
func (w *joinTask) pass(output string, finish bool) {
	w.left = leftover{}
	if finish || w.inLastStage() {
		w.output = output
		w.final(asyncflow.StatusSucceeded)
		return
	}
	w.contexts[1] = output
	if output == "" {
		w.contexts[1] = w.contexts[0]
	}
	w.stage, w.attempt, w.status, w.reason = 1, 1, asyncflow.StatusPending, ""
}

// fail makes a task of type pipe go on after its first stage failed for good; others end.
func (w *joinTask) fail() {
	if w.id.Type == "fan" || w.inLastStage() {
		w.final(asyncflow.StatusFailed)
		return
	}
	w.contexts[1] = w.contexts[0]
	w.stage, w.attempt, w.status, w.reason = 1, 1, asyncflow.StatusPending, ""
}

func (w *joinTask) final(status asyncflow.Status) {
	w.status, w.reason = status, ""
	w.seq-- // no token row follows
}

// expire lets a lease run out.
func (m *joinMachine) expire(t *rapid.T) {
	m.lose(t, m.pick(t, func(w *joinTask) bool { return w.status == asyncflow.StatusRunning }))
}

func (m *joinMachine) lose(t *rapid.T, w *joinTask) {
	kind := m.kind(w.id.Type)
	m.b.exec(fill(kind, 0, `UPDATE {lease} SET until = now() - interval '1 s'
		WHERE type = {number} AND id = $1`), w.id.Number)
	n, err := m.b.Rescue(t.Context(), kind)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	w.end(asyncflow.Outcome{Kind: asyncflow.OutcomeLost})
}

func (m *joinMachine) cancel(t *rapid.T) {
	w := m.pick(t, func(w *joinTask) bool { return !w.status.Final() })
	died, err := m.onNode(t, func(b *bundle) error {
		_, err := b.Cancel(t.Context(), tenant, w.id, "no more")
		return err
	})
	if died && !m.b.task(w.id).Status.Final() {
		return
	}
	require.True(t, died || err == nil, "%v", err)
	w.end(asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled})
}

// redrive redrives a task from the stage in which it ended, or from the first one: with those of
// its tasks that didn't succeed, or with new ones.
func (m *joinMachine) redrive(t *rapid.T) {
	w := m.pick(t, (*joinTask).redrivable)
	how := store.Redrive{AllChildren: rapid.IntRange(0, 3).Draw(t, "all children") == 0,
		Fresh: rapid.IntRange(0, 3).Draw(t, "fresh") == 0}
	stage := w.stage
	if stage > 0 && rapid.Bool().Draw(t, "from the first stage") {
		how.Stage, stage = "first", 0
	}
	died, err := m.onNode(t, func(b *bundle) error {
		_, err := b.Redrive(t.Context(), tenant, w.id, how)
		return err
	})
	if died && m.b.task(w.id).Status == w.status {
		return
	}
	if w.part != nil && m.seen.families[w.part.key()].over() ||
		!how.AllChildren && w.reopens(stage) && !m.seen.families[w.own.key()].closed {
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
		return
	}
	require.True(t, died || err == nil, "%v", err)
	if w.part != nil {
		w.part.extra++
	}
	w.redrive(stage, how.AllChildren)
	if how.Fresh {
		w.left = leftover{}
	}
}

func (w *joinTask) redrive(stage int, all bool) {
	again := !all && w.reopens(stage) &&
		w.own.count()[asyncflow.StatusSucceeded] < len(w.own.list)
	w.seq += 2
	w.stage, w.attempt, w.status = stage, 1, asyncflow.StatusPending
	if again {
		w.status, w.reason = asyncflow.StatusWaiting, asyncflow.WaitChildren
		w.own.waits, w.own.again, w.own.paused = w.seq, true, false
	}
}

// pause pauses what is below a task that waits.
func (m *joinMachine) pause(t *rapid.T) {
	w := m.pick(t, func(w *joinTask) bool { return w.reason == asyncflow.WaitChildren })
	_, err := m.b.PauseTree(t.Context(), tenant, w.id, "")
	if m.seen.families[w.own.key()].over() {
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
		return
	}
	require.NoError(t, err)
	w.own.paused = true
}

func (m *joinMachine) resume(t *rapid.T) {
	m.resumeOne(m.pick(t, func(w *joinTask) bool {
		return w.reason == asyncflow.WaitChildren && w.own.paused &&
			!m.seen.families[w.own.key()].over()
	}))
}

func (m *joinMachine) resumeOne(w *joinTask) {
	_, err := m.b.ResumeTree(m.b.t.Context(), tenant, w.id)
	require.NoError(m.t, err)
	w.own.paused = false
}

// priority gives a task another priority.
func (m *joinMachine) priority(t *rapid.T) {
	m.prioritize(t, m.pick(t, func(w *joinTask) bool {
		return w.status == asyncflow.StatusPending || w.status == asyncflow.StatusWaiting
	}))
}

// priorityOfParent gives a task that waits for others another priority, which goes down to these.
func (m *joinMachine) priorityOfParent(t *rapid.T) {
	m.prioritize(t, m.pick(t, func(w *joinTask) bool {
		return w.reason == asyncflow.WaitChildren
	}))
}

func (m *joinMachine) prioritize(t *rapid.T, w *joinTask) {
	m.priorities++
	p := asyncflow.Patch{Priority: asyncflow.Priority{m.priorities}}
	died, err := m.onNode(t, func(b *bundle) error {
		_, err := b.Change(t.Context(), tenant, w.id, p)
		return err
	})
	if died && !slices.Equal(m.b.task(w.id).Options.Priority, p.Priority) {
		return
	}
	require.True(t, died || err == nil, "%v", err)
	w.change()
}

// change notes that a task got another priority.
func (w *joinTask) change() {
	w.seq++
	w.changed = true
	if w.reason == asyncflow.WaitChildren {
		w.own.waits = w.seq
	}
}

// finish drives all tasks to their ends: none may wait for ever.
func (m *joinMachine) finish() {
	m.check(m.t)
	for round := 0; ; round++ {
		require.Less(m.t, round, 200, "tasks don't end")
		m.quiet(m.t)
		for _, w := range m.order {
			if w.reason == asyncflow.WaitChildren && w.own.paused {
				m.resumeOne(w)
			}
		}
		m.quiet(m.t)
		if !slices.ContainsFunc(m.order, func(w *joinTask) bool { return !w.status.Final() }) {
			break
		}
		m.lease()
		moved := false
		for _, w := range m.order {
			if w.status == asyncflow.StatusRunning {
				o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
				if w.spreads() {
					o = m.spread(m.t, w)
				}
				m.report(w, o)
				moved = true
			}
		}
		require.True(m.t, moved, "nothing moves")
		m.check(m.t)
	}
	for _, name := range m.types {
		m.b.checkTallies(name)
	}
}
