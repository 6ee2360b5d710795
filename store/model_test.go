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

// model is what a task should be like after the same steps, kept without a database.
type model struct {
	status  asyncflow.Status
	before  asyncflow.Status // at the last check
	stage   int
	attempt int
	seq     int                           // of its token row; if final, of its last journal row
	written map[int]asyncflow.OutcomeKind // how each seq ended
	outputs map[int]string                // with which output, if any
	leases  []asyncflow.Lease             // all that were ever given out
	// the last lost seq, unless it was started again; 0: none
	lost     int
	lateSeq  map[int]bool // seqs that a late report took
	went     map[int]int  // the stage with which a done seq went on
	over     map[int]bool // seqs after which a task had taken too many steps
	passed   int          // stages since the submit or the last redrive
	visits   int          // of stages, in all
	priority int          // its own; -1: none
	contexts []string     // what each stage is sent with
	left     leftover     // what an attempt left for the next one
	starts   bool         // with a start_by
	ends     bool         // with an end_by
	begun    bool         // since the submit or the last redrive
}

// leftover is a checkpoint; without a document there is none.
type leftover struct {
	document string
	stage    int
}

// checkpoint returns what the next attempt gets.
func (w *model) checkpoint() string {
	if w.left.stage != w.stage {
		return ""
	}
	return w.left.document
}

const (
	modelAttempts = 3
	modelStages   = 2 // also stands for the end
	modelSteps    = 5
)

// machine drives the store and its models through the same steps. The retries of
// the first stage are due at once, those of the second in ten minutes.
type machine struct {
	b     *bundle
	nodes nodePair
	t     *rapid.T
	pipe  *store.Type
	tasks map[asyncflow.TaskID]*model
	order []asyncflow.TaskID

	paused bool
}

func (m *machine) any() (asyncflow.TaskID, *model) {
	if len(m.order) == 0 {
		m.t.Skip("no task yet")
	}
	id := rapid.SampledFrom(m.order).Draw(m.t, "task")
	return id, m.tasks[id]
}

// anyLease returns a task and one of its leases: mostly one that stands, if there is one.
func (m *machine) anyLease(t *rapid.T) (*model, asyncflow.Lease) {
	var running []*model
	for _, id := range m.order {
		if w := m.tasks[id]; w.status == asyncflow.StatusRunning {
			running = append(running, w)
		}
	}
	if len(running) > 0 && rapid.IntRange(0, 3).Draw(t, "any") > 0 {
		w := rapid.SampledFrom(running).Draw(t, "running task")
		return w, w.leases[len(w.leases)-1]
	}
	_, w := m.any()
	if len(w.leases) == 0 {
		t.Skip("never leased")
	}
	return w, rapid.SampledFrom(w.leases).Draw(t, "lease")
}

func (m *machine) submit(t *rapid.T) {
	doc := fmt.Sprint(len(m.order))
	task := asyncflow.NewTask{Type: m.pipe.Name, Context: json.RawMessage(doc)}
	task.Options.OnFinal = shop()
	status := asyncflow.StatusPending
	if rapid.Bool().Draw(t, "delayed") {
		task.Delay, status = asyncflow.NewDuration(time.Hour), asyncflow.StatusWaiting
	}
	starts, ends := rapid.Bool().Draw(t, "start_by"), rapid.Bool().Draw(t, "end_by")
	if starts {
		task.StartBy = asyncflow.DeadlineAfter(time.Hour)
	}
	if ends {
		task.EndBy = asyncflow.DeadlineAfter(2 * time.Hour)
	}
	id := m.b.submit(task)[0].ID
	m.tasks[id] = &model{
		starts:   starts,
		ends:     ends,
		status:   status,
		attempt:  1,
		seq:      1,
		priority: -1,
		written:  map[int]asyncflow.OutcomeKind{},
		outputs:  map[int]string{},
		lateSeq:  map[int]bool{},
		went:     map[int]int{},
		over:     map[int]bool{},
		visits:   1,
		contexts: []string{doc, ""},
	}
	m.order = append(m.order, id)
}

// lease takes all that is pending, as a node does: nothing while the type is paused.
func (m *machine) lease(t *rapid.T) {
	capacity := m.pipe.Capacity(100, m.b.Clock.Now())
	require.Equal(t, m.paused, capacity == 0)
	if m.paused {
		return
	}
	pending := 0
	for _, w := range m.tasks {
		if w.status == asyncflow.StatusPending {
			pending++
		}
	}
	for deadline := time.Now().Add(patience); pending > 0; {
		require.True(t, time.Now().Before(deadline), "%d tasks are pending and not to be had",
			pending)
		for _, l := range m.b.lease(m.pipe, capacity) {
			w := m.tasks[l.ID]
			require.NotNil(t, w, "%s is none of ours", l.ID)
			require.Equal(t, asyncflow.StatusPending, w.status, l.ID)
			require.Equal(t, []any{w.stage, w.attempt, w.seq, w.contexts[w.stage], w.checkpoint()},
				[]any{m.pipe.StageIndex(l.Stage), l.Attempt, l.Seq, string(l.Context),
					string(l.Checkpoint)}, l.ID)
			w.status, w.lost = asyncflow.StatusRunning, 0
			w.leases = append(w.leases, l)
			pending--
		}
	}
}

// end lets the current attempt of a model end.
func (w *model) end(kind asyncflow.OutcomeKind, output string) {
	w.written[w.seq], w.outputs[w.seq] = kind, output
	w.begun = w.begun || kind.BeganBy()
	w.seq++
	switch {
	case kind == asyncflow.OutcomeReleased:
		w.status = asyncflow.StatusPending
	case kind == asyncflow.OutcomeRejected, kind == asyncflow.OutcomeExpired:
		w.finish(asyncflow.StatusFailed)
	case kind == asyncflow.OutcomeCancelled:
		w.finish(asyncflow.StatusCancelled)
	case w.attempt >= modelAttempts:
		w.finish(asyncflow.StatusFailed)
	default:
		w.attempt++
		w.status = []asyncflow.Status{asyncflow.StatusPending, asyncflow.StatusWaiting}[w.stage]
	}
}

// pass lets the current stage of a model be done, and the task go on with another, or end.
func (w *model) pass(output string, to int) {
	seq, next := w.seq, w.contexts[w.stage]
	w.written[seq], w.outputs[seq], w.went[seq] = asyncflow.OutcomeDone, output, to
	w.seq++
	w.passed++
	w.begun = true
	w.left = leftover{}
	switch {
	case to == modelStages:
		w.finish(asyncflow.StatusSucceeded)
	case w.passed >= modelSteps:
		w.over[seq] = true
		w.finish(asyncflow.StatusFailed)
	default:
		if output != "" {
			next = output
		}
		w.stage, w.attempt, w.status, w.visits = to, 1, asyncflow.StatusPending, w.visits+1
		w.contexts[to] = next
	}
}

// isSame reports whether an outcome is the one that was written for a seq. to is the stage that it
// names; -1: it names none.
func (w *model) isSame(seq int, kind asyncflow.OutcomeKind, output string, to int) bool {
	if w.written[seq] != kind || kind != asyncflow.OutcomeDone {
		return w.written[seq] == kind
	}
	return w.outputs[seq] == output && (to < 0 || w.over[seq] || to == w.went[seq])
}

// choose lets the worker of a stage choose how the task goes on, or not.
func (m *machine) choose(t *rapid.T, l asyncflow.Lease, o *asyncflow.Outcome) (to int) {
	to = rapid.SampledFrom([]int{-1, 0, 1, modelStages}).Draw(t, "next stage")
	switch {
	case to == modelStages:
		o.Finish = true
	case to >= 0:
		o.Next = m.pipe.Stages[to].Name
	}
	if err := m.pipe.CheckStep(l, *o); err != nil {
		require.Equal(t, []int{1, 1}, []int{m.pipe.StageIndex(l.Stage), to}, "%v", err)
		o.Next = ""
		return -1
	}
	return to
}

func (w *model) finish(status asyncflow.Status) {
	w.status = status
	w.seq-- // no token row follows
}

// settle reports an outcome for any lease ever given out, old ones too.
func (m *machine) settle(t *rapid.T) {
	w, l := m.anyLease(t)
	kind := rapid.SampledFrom([]asyncflow.OutcomeKind{
		asyncflow.OutcomeDone, asyncflow.OutcomeDone, asyncflow.OutcomeFailed,
		asyncflow.OutcomeRejected, asyncflow.OutcomeReleased}).
		Draw(t, "outcome")
	o := asyncflow.Outcome{Kind: kind}
	if kind == asyncflow.OutcomeDone && rapid.Bool().Draw(t, "with output") {
		o.Output = json.RawMessage(fmt.Sprintf(`"%s.%d"`, l.ID, l.Seq))
	}
	to := -1
	if kind == asyncflow.OutcomeDone {
		to = m.choose(t, l, &o)
	}
	m.report(t, w, l, o, to)
}

// report reports an outcome of a lease that names a stage; to is -1 if it names none.
func (m *machine) report(t *rapid.T, w *model, l asyncflow.Lease, o asyncflow.Outcome, to int) {
	if m.pipe.NeedsPath(l, o) {
		var err error
		o.Path, err = m.b.Passed(m.b.t.Context(), m.pipe, l)
		require.NoError(t, err)
	}
	b, end := m.nodes.node(t)
	r := b.settle(m.pipe, l, o)
	end()
	require.NoError(t, r.Err)
	if w.status == asyncflow.StatusRunning && l.Seq == w.seq {
		require.False(t, r.Stale, "%s seq %d holds the lease", l.ID, l.Seq)
		if o.Kind == asyncflow.OutcomeDone {
			w.pass(string(o.Output), orNext(to, w.stage))
		} else {
			w.end(o.Kind, string(o.Output))
		}
		return
	}
	same := w.isSame(l.Seq, o.Kind, string(o.Output), to)
	require.Equal(t, store.Settled{Stale: !same, Written: w.written[l.Seq]}, r, "%s seq %d",
		l.ID, l.Seq)
}

// orNext returns a stage that was named or, for -1, the following one.
func orNext(to, stage int) int {
	if to < 0 {
		return stage + 1
	}
	return to
}

// expire lets a lease run out.
func (m *machine) expire(t *rapid.T) {
	id, w := m.any()
	if w.status != asyncflow.StatusRunning {
		t.Skip("not running")
	}
	_, err := m.b.db.Exec(m.b.t.Context(),
		`UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE id = $1`, id.Number)
	require.NoError(t, err)
	n, err := m.b.Rescue(m.b.t.Context(), m.pipe)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	seq := w.seq
	w.end(asyncflow.OutcomeLost, "")
	if !w.status.Final() {
		w.lost = seq
	}
}

// lapse lets a time of a task's lifetime come, and the job find it, perhaps on a node that loses
// its connection.
func (m *machine) lapse(t *rapid.T) {
	id, w := m.any()
	field := rapid.SampledFrom([]string{"start_by", "end_by"}).Draw(t, "field")
	if w.status.Final() || field == "start_by" && !w.starts || field == "end_by" && !w.ends {
		t.Skip("it has none")
	}
	m.b.lapse(id, field)
	b, end := m.nodes.node(t)
	_, _ = b.ExpireTasks(m.b.t.Context(), m.pipe) // what it leaves, the other node does
	end()
	m.b.expireTasks()
	if field == "end_by" || !w.begun && w.status != asyncflow.StatusRunning {
		w.lost = 0
		w.end(asyncflow.OutcomeExpired, "")
	}
}

// late reports that a lost attempt is done after all.
func (m *machine) late(t *rapid.T) {
	id, w := m.any()
	if len(w.leases) == 0 {
		t.Skip("never leased")
	}
	l := rapid.SampledFrom(w.leases).Draw(t, "lease")
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	to := m.choose(t, l, &o)
	_, taken, err := m.b.SettleLate(m.b.t.Context(), m.pipe, id, l.Seq, o)
	if w.lateSeq[l.Seq+1] && !w.isSame(l.Seq+1, o.Kind, "", to) {
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "another late report")
		return
	}
	require.NoError(t, err)
	if w.lateSeq[l.Seq+1] {
		require.True(t, taken, "the same late report again")
		return
	}
	require.Equal(t, w.lost == l.Seq && w.lost != 0, taken, "%s seq %d, lost %d", id, l.Seq, w.lost)
	if taken {
		w.lateSeq[w.seq], w.lost = true, 0
		w.attempt = l.Attempt
		w.pass("", orNext(to, w.stage))
	}
}

// heartbeat extends any lease ever given out, perhaps with a checkpoint: only one that stands.
func (m *machine) heartbeat(t *rapid.T) {
	w, l := m.anyLease(t)
	m.beat(t, w, l, rapid.SampledFrom([]string{"", `{"page":1}`, `"half"`}).Draw(t, "checkpoint"))
}

// goRound makes an attempt leave a checkpoint, and its task come to the first stage again.
func (m *machine) goRound(t *rapid.T) {
	w, l := m.anyLease(t)
	m.beat(t, w, l, `"goes round"`)
	m.report(t, w, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Next: "first"}, 0)
	m.lease(t)
}

func (m *machine) beat(t *rapid.T, w *model, l asyncflow.Lease, document string) {
	extended := make(chan bool, 1)
	b, end := m.nodes.node(t)
	b.Extend(tenant, l, m.b.Clock.Now().Add(time.Hour), b.checkpoint(document),
		store.Seen{}, func(ok bool, err error) {
			require.NoError(t, err)
			extended <- ok
		})
	stands := <-extended
	end()
	require.Equal(t, w.status == asyncflow.StatusRunning && l.Seq == w.seq, stands)
	if stands && document != "" {
		w.left = leftover{document, w.stage}
	}
}

// change gives a task another priority, another time, or both.
func (m *machine) change(t *rapid.T) {
	id, w := m.any()
	when := rapid.SampledFrom([]string{"", "now", "later"}).Draw(t, "when")
	priority := rapid.IntRange(0, 2).Draw(t, "priority")
	p := asyncflow.Patch{Priority: asyncflow.Priority{priority}}
	if when != "" {
		p.RunAt = m.b.Clock.Now().Add(map[string]time.Duration{"now": 0, "later": time.Hour}[when])
	}
	_, err := m.b.Change(m.b.t.Context(), tenant, id, p)
	if w.status.Final() || w.status == asyncflow.StatusRunning {
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
		return
	}
	require.NoError(t, err)
	due := when == "now" && w.status == asyncflow.StatusPending // it keeps its place
	if (when == "" || due) && priority == w.priority {
		return // nothing to change
	}
	w.priority, w.lost = priority, 0
	w.written[w.seq] = asyncflow.OutcomeChanged
	w.seq++
	w.status = map[string]asyncflow.Status{
		"": w.status, "now": asyncflow.StatusPending, "later": asyncflow.StatusWaiting,
	}[when]
}

// pause pauses the type, or resumes it.
func (m *machine) pause(t *rapid.T) {
	m.setPaused(!m.paused)
}

func (m *machine) setPaused(paused bool) {
	var err error
	if paused {
		_, err = m.b.Pause(m.b.t.Context(), tenant, m.pipe.Name, "")
	} else {
		_, err = m.b.Resume(m.b.t.Context(), tenant, m.pipe.Name, 0)
	}
	require.NoError(m.t, err)
	m.paused = paused
	m.pipe, err = m.b.Catalog.Type(tenant, m.pipe.Name)
	require.NoError(m.t, err)
}

func (m *machine) cancel(t *rapid.T) {
	id, w := m.any()
	_, err := m.b.Cancel(m.b.t.Context(), tenant, id, "no more")
	switch {
	case w.status == asyncflow.StatusSucceeded || w.status == asyncflow.StatusFailed:
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	default:
		require.NoError(t, err)
		if !w.status.Final() {
			w.lost = 0
			w.end(asyncflow.OutcomeCancelled, "")
		}
	}
}

func (m *machine) redrive(t *rapid.T) {
	id, w := m.any()
	stage := rapid.IntRange(0, w.stage).Draw(t, "stage")
	how := store.Redrive{Stage: m.pipe.Stages[stage].Name, Fresh: rapid.Bool().Draw(t, "fresh")}
	again := func() error {
		_, err := m.b.Redrive(m.b.t.Context(), tenant, id, how)
		return err
	}
	var err error
	if rapid.Bool().Draw(t, "twice at once") {
		err = m.onlyOne(again)
	} else {
		err = again()
	}
	if w.status != asyncflow.StatusFailed && w.status != asyncflow.StatusCancelled {
		require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
		return
	}
	require.NoError(t, err)
	w.written[w.seq+1] = asyncflow.OutcomeRedriven
	w.status, w.stage, w.attempt, w.seq = asyncflow.StatusPending, stage, 1, w.seq+2
	w.passed, w.visits, w.begun = 0, w.visits+1, false
	if how.Fresh {
		w.left = leftover{}
	}
}

// onlyOne does something twice at once; one of the two at most may succeed.
func (m *machine) onlyOne(do func() error) error {
	second := make(chan error, 1)
	go func() { second <- do() }()
	first, other := do(), <-second
	if first == nil {
		require.Equal(m.t, asyncflow.CodeConflict, asyncflow.CodeOf(other), "%v", other)
		return nil
	}
	return other
}

// promote makes what waits for a time due.
func (m *machine) promote(t *rapid.T) {
	now := m.b.Clock.Now() // in all places that know of it
	for _, position := range m.pipe.Rolls() {
		m.b.exec(m.b.at(position, `UPDATE {task} SET order_time = $1
			WHERE id IN (SELECT id FROM {wait})`), now)
		m.b.exec(m.b.at(position, `UPDATE {journal} SET next_time = $1
			WHERE id IN (SELECT id FROM {wait}) AND next_time IS NOT NULL`), now)
	}
	m.b.exec(`UPDATE tenant_acme.wait SET until = $1, order_time = $1`, now)
	want := 0
	for _, w := range m.tasks {
		if w.status == asyncflow.StatusWaiting {
			w.status = asyncflow.StatusPending
			want++
		}
	}
	n, err := m.b.Promote(m.b.t.Context(), m.pipe, nil)
	require.NoError(t, err)
	require.Equal(t, want, n)
}

// check compares the store with the models, and the one-token-row rule and the
// tallies with the tables.
func (m *machine) check(t *rapid.T) {
	require.Empty(t, m.b.wrongEnds())
	m.b.checkTokens(m.pipe.Name)
	m.b.checkTallies(m.pipe.Name)
	for id, w := range m.tasks {
		task, err := m.b.Task(m.b.t.Context(), tenant, id)
		require.NoError(t, err)
		require.Equal(t, []any{w.status, w.stage, w.attempt, w.visits},
			[]any{task.Status, m.pipe.StageIndex(task.Stage), task.Attempt, task.Steps}, id)
		if w.status != w.before {
			require.True(t, slices.ContainsFunc(asyncflow.Transitions,
				func(s asyncflow.Transition) bool {
					return s.From == w.before && s.To == w.status
				}), "from %q to %q", w.before, w.status)
		}
		w.before = w.status
	}
}

// modelLanes is how often a model is run side by side, each with a database of its own.
var modelLanes = longform.Size(1, 5)

// Random steps, races among them aside, lead a task where the simple model says.
func TestModel(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for lane := range modelLanes {
		t.Run(fmt.Sprint(lane), func(t *testing.T) { eachSet(t, holdAgainstModel) })
	}
}

// checkSequences runs random sequences: some, or in the long form as many as -rapid.checks says.
func checkSequences(t *testing.T, some int, run func(*rapid.T)) {
	done, failed := 0, false
	rapid.Check(t, func(rt *rapid.T) {
		if !longform.Asked() && done >= some && !failed {
			return
		}
		ended := false
		defer func() { failed = failed || !ended }() // rapid looks for the shortest sequence then
		run(rt)
		ended, done = true, done+1
	})
}

func holdAgainstModel(t *testing.T, b *bundle) {
	b.holdAgainst(t, 10, func(m *machine) map[string]func(*rapid.T) { return m.steps() })
}

// patient is a task type with leases that outlive a sequence, on a busy machine as well.
func patient() asyncflow.TaskType {
	t := twoStages()
	for i := range t.Stages {
		t.Stages[i].Timeout = asyncflow.NewDuration(10 * time.Minute)
	}
	return t
}

// holdAgainst takes random steps, in some sequences.
func (b *bundle) holdAgainst(
	t *testing.T, some int, stepsOf func(*machine) map[string]func(*rapid.T),
) {
	spec := patient()
	spec.Stages[1].Retry.Interval = asyncflow.Seconds(-600)
	spec.Stages[0].Next = []string{"first", "second", asyncflow.NextFinish}
	spec.Stages[1].Next = []string{"first", asyncflow.NextFinish}
	spec.MaxSteps = modelSteps
	b.told()
	b.put(spec)
	nodes := newNodePair(t, b)
	checkSequences(t, some, func(rt *rapid.T) {
		b.clear()
		b.exec(`TRUNCATE tenant_acme.outbox, tenant_acme.notifications`)
		m := &machine{b: b, nodes: nodes, t: rt, pipe: b.known(),
			tasks: map[asyncflow.TaskID]*model{}}
		m.setPaused(false)
		rt.Repeat(stepsOf(m))
	})
}

func (m *machine) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"submit": m.submit, "lease": m.lease, "settle": m.settle, "settle again": m.settle,
		"expire": m.expire, "lapse": m.lapse,
		"late": m.late, "cancel": m.cancel, "redrive": m.redrive, "promote": m.promote,
		"heartbeat": m.heartbeat, "go round": m.goRound, "change": m.change,
		"pause": m.pause, "": m.check,
	}
}
