package asyncflow

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of the steps of a task: each visit of a stage is one.
const (
	MaxMaxSteps     = 10_000
	DefaultMaxSteps = 100
)

// NextFinish in a stage's Next lets the stage's workers end the task.
const NextFinish = "finish"

// StageFailure is what follows when a task fails in a stage for good.
type StageFailure struct {
	Next string `json:"next"` // the stage with which it goes on, such as one that undoes
}

// nexts returns the indexes of the stages with which a task may go on after a stage. The number of
// stages stands for its end.
func (t TaskType) nexts(stage int) []int {
	if len(t.Stages[stage].Next) == 0 {
		return []int{stage + 1}
	}
	all := make([]int, len(t.Stages[stage].Next))
	for i, name := range t.Stages[stage].Next {
		all[i] = t.StageIndex(name)
		if name == NextFinish {
			all[i] = len(t.Stages)
		}
	}
	return all
}

// step returns the index of the stage with which a task goes on after a stage, or the number of
// stages if the task ends. Its error names what is allowed.
//
// A worker that names nothing means the following stage or, if the type doesn't allow that, the
// only one that it does.
func (t TaskType) step(stage int, o Outcome) (to int, err error) {
	if !o.chooses() && len(t.Stages[stage].Next) == 0 {
		return stage + 1, nil
	}
	allowed := t.nexts(stage)
	to = stage + 1
	switch {
	case o.Finish:
		to = len(t.Stages)
	case o.Next != "":
		name, _ := t.Mapped(o.Next, 1) // a worker may know a stage by its earlier name
		to = t.StageIndex(name)
	case len(allowed) == 1:
		to = allowed[0]
	case o.Kind == OutcomeJoined || o.Kind == OutcomeSignalled: // nobody was asked
		return to, nil
	}
	if to >= 0 && slices.Contains(allowed, to) {
		return to, nil
	}
	return 0, t.refuseStep(stage, o)
}

// chooses reports whether the worker names how the task goes on.
func (o Outcome) chooses() bool { return o.Next != "" || o.Finish }

// refuseStep returns the error of an outcome that chooses what its stage doesn't allow.
func (t TaskType) refuseStep(stage int, o Outcome) error {
	what := "next_stage is missing"
	switch {
	case o.Finish:
		what = "finish is not allowed"
	case o.Next != "":
		what = fmt.Sprintf("next_stage %q is not allowed", cutName(o.Next))
	}
	return Errorf(CodeNextStage, "%s after stage %q: it must be %s", what, t.Stages[stage].Name,
		t.allowedText(stage))
}

// allowedText lists what a worker may choose after a stage.
func (t TaskType) allowedText(stage int) string {
	var names []string
	for _, to := range t.nexts(stage) {
		if to == len(t.Stages) {
			names = append(names, "finish: true")
		} else {
			names = append(names, fmt.Sprintf("next_stage: %q", t.Stages[to].Name))
		}
	}
	return strings.Join(names, " or ")
}

// cutName shortens a name that a worker gave.
func cutName(name string) string {
	const most = 100
	if len(name) <= most {
		return name
	}
	return strings.ToValidUTF8(name[:most], "") + "…"
}

// CheckStep checks how an attempt's worker lets the task go on. Its error is CodeNextStage.
func (t TaskType) CheckStep(l Lease, o Outcome) error {
	if o.Kind != OutcomeDone {
		return nil
	}
	if child := l.Options.Child; child != nil {
		switch {
		case !o.chooses():
			return nil
		case child.Vote:
			return Errorf(CodeNextStage, "a vote has no next_stage and no finish: "+
				"the task goes on when the vote is decided")
		}
		return Errorf(CodeNextStage, "a child has no next_stage and no finish: "+
			"its parent goes on when all children have ended")
	}
	stage := t.StageIndex(l.Stage)
	if stage < 0 { // it was removed: the task goes on by the mapping
		return nil
	}
	_, err := t.step(stage, o)
	return err
}

// Judged returns an outcome as it counts: an answer that chooses what is not allowed is
// a failed attempt.
func (t TaskType) Judged(l Lease, o Outcome) Outcome {
	if err := t.CheckStep(l, o); err != nil {
		return o.Refused(err)
	}
	return o
}

// Chosen returns the names in the journal of the stage that an outcome names; "" stands for the
// task's end. nil: it names nothing; empty: no stage that there is.
func (t TaskType) Chosen(o Outcome) []string {
	switch {
	case o.Join != nil: // it waits first
		return nil
	case o.Finish:
		return []string{""}
	case o.Next != "":
		name, _ := t.Mapped(o.Next, 1)
		if t.StageIndex(name) < 0 {
			return []string{}
		}
		return t.NamesOf(name)
	}
	return nil
}

// NeedsPath reports whether Decide needs the Path of an outcome: the task may have taken as many
// steps as it may. Each step has a row in the journal, so that Seq bounds their number.
func (t TaskType) NeedsPath(l Lease, o Outcome) bool {
	return l.Seq >= t.maxSteps() && (o.passed() || t.undone(l) >= 0) && l.Options.Child == nil &&
		t.Branches()
}

// Branches reports whether the type says for any stage what comes next.
func (t TaskType) Branches() bool {
	return slices.ContainsFunc(t.Stages, func(s Stage) bool {
		return len(s.Next) > 0 || s.undo() != nil
	})
}

// undone returns the index of the stage with which a task goes on that fails in the stage of a
// lease for good; -1: it fails. Children and votes fail: their parent decides.
func (t TaskType) undone(l Lease) int {
	stage := t.StageIndex(l.Stage)
	if stage < 0 || t.Stages[stage].undo() == nil || l.Options.Child != nil {
		return -1
	}
	return t.StageIndex(t.Stages[stage].undo().Next)
}

// fails returns the verdict on a task that failed in a stage for good. why is its error if that
// isn't the attempt's.
func (t TaskType) fails(l Lease, o Outcome, why string, now time.Time) Verdict {
	to := t.undone(l)
	if to < 0 {
		return Verdict{Kind: Fail, Error: why}
	}
	if over := t.overSteps(l, o, t.StageIndex(l.Stage), to); over != "" {
		return Verdict{Kind: Fail, Error: over + ". It failed: " + cmp.Or(why, o.Error)}
	}
	return Verdict{Kind: Advance, Stage: t.Stages[to].Name, Attempt: 1, Error: why,
		OrderTime: EnterOrder(t, to, l.Options, now)}
}

// ways returns the indexes of all stages to which a task may go from a stage.
func (t TaskType) ways(stage int) []int {
	all := t.nexts(stage)
	if undo := t.Stages[stage].undo(); undo != nil {
		all = append(all, t.StageIndex(undo.Next))
	}
	return all
}

// Senders returns the stages of an older version, still in t, from which its workers may send tasks
// to removed stages.
func (t TaskType) Senders(old TaskType, removed []string) (names []string) {
	for _, s := range old.Stages {
		leads := slices.ContainsFunc(s.Next,
			func(next string) bool { return slices.Contains(removed, next) }) ||
			s.undo() != nil && slices.Contains(removed, s.undo().Next)
		if leads && t.StageIndex(s.Name) >= 0 {
			names = append(names, s.Name)
		}
	}
	return names
}

// Revisits reports whether a task may come back to a stage.
func (t TaskType) Revisits(stage int) bool {
	return stage >= 0 && t.revisited().has(stage)
}

// stageSet holds a bit for each of up to MaxStages stages.
type stageSet uint64

func (s stageSet) has(stage int) bool { return s>>stage&1 == 1 }

// revisited returns the stages to which a task may come back. Each submit may ask for them.
func (t TaskType) revisited() (all stageSet) {
	if !t.Branches() {
		return 0
	}
	after := t.followers()
	for via, reached := range after {
		for from := range after {
			if after[from].has(via) {
				after[from] |= reached
			}
		}
	}
	for stage, reached := range after {
		all |= reached & (1 << stage)
	}
	return all
}

// followers returns the stages that may come right after each stage.
func (t TaskType) followers() []stageSet {
	numbers := make(map[string]int, len(t.Stages))
	for i := range t.Stages {
		numbers[t.Stages[i].Name] = i
	}
	after := make([]stageSet, len(t.Stages))
	for i := range t.Stages {
		if len(t.Stages[i].Next) == 0 && i+1 < len(t.Stages) {
			after[i] = 1 << (i + 1)
		}
		for _, name := range t.Stages[i].Next {
			if to, ok := numbers[name]; ok { // not the end
				after[i] |= 1 << to
			}
		}
		if undo := t.Stages[i].undo(); undo != nil {
			if to, ok := numbers[undo.Next]; ok {
				after[i] |= 1 << to
			}
		}
	}
	return after
}

// maxSteps returns MaxSteps. Types from before it was known get the default.
func (t TaskType) maxSteps() int {
	if t.MaxSteps == 0 {
		return DefaultMaxSteps
	}
	return t.MaxSteps
}

// overSteps returns why a task can't go from a stage to another; "": it can.
func (t TaskType) overSteps(l Lease, o Outcome, stage, to int) string {
	steps := len(o.Path) + 1
	switch {
	case to == len(t.Stages):
		return ""
	case o.Path != nil && steps >= t.maxSteps():
		return fmt.Sprintf("it took %d steps; max_steps is %d: %s", steps, t.maxSteps(),
			pathText(append(slices.Clone(o.Path), l.Stage)))
	case to <= stage && l.Seq >= MaxJournal:
		return fmt.Sprintf("its journal has %d rows, so it can't go back to %q", l.Seq,
			t.Stages[to].Name)
	}
	return ""
}

// pathEnds is how many stages of a long path are shown, at its begin and at its end.
const pathEnds = 10

// pathText shows the stages of a path, but not the middle of a long one.
func pathText(path []string) string {
	if left := len(path) - 2*pathEnds; left > 0 {
		middle := "… " + strconv.Itoa(left) + " more …"
		path = slices.Concat(path[:pathEnds], []string{middle}, path[len(path)-pathEnds:])
	}
	return strings.Join(path, " → ")
}
