package asyncflow

import (
	"fmt"
	"slices"
	"strings"
)

// checkSteps checks where tasks may go after each stage.
func (t TaskType) checkSteps(out *problems) {
	if t.MaxSteps < 0 || t.MaxSteps > MaxMaxSteps {
		out.add("max_steps", "is %d; it must be 1 to %d", t.MaxSteps, MaxMaxSteps)
	}
	if !t.Branches() || len(t.Stages) > MaxStages {
		return
	}
	known := true
	for i, s := range t.Stages {
		known = t.checkNext(fmt.Sprintf("stages[%d].next", i), s, out) && known
	}
	if known {
		t.checkEnds(out)
		t.checkOrdered(out)
	}
}

// checkNext checks the next stages of one stage, and reports whether they are known.
func (t TaskType) checkNext(field string, s Stage, out *problems) (known bool) {
	if n := len(s.Next); n > MaxStages+1 {
		out.add(field, "has %d entries; the limit is %d", n, MaxStages+1)
		return false
	}
	known = true
	for i, name := range s.Next {
		entry := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case name == NextFinish && t.StageIndex(name) >= 0:
			out.add(entry, `is "finish", which ends the task, and also the name of a stage: `+
				`rename the stage`)
		case name != NextFinish && t.StageIndex(name) < 0:
			out.add(entry, `is %q, which is neither a stage nor "finish"`, cutName(name))
			known = false
		case slices.Contains(s.Next[:i], name):
			out.add(entry, "is %q, which an earlier entry is", name)
		}
	}
	stage := strings.TrimSuffix(field, "next")
	switch {
	case s.Wait != nil && s.Wait.OnTimeout != nil:
		known = t.checkUndo(stage+"wait.on_timeout", s, out) && known
	case s.OnFailure != nil:
		known = t.checkUndo(stage+"on_failure", s, out) && known
	}
	if s.Spreads() != nil && len(s.Next) > 1 {
		out.add(field, "has %d entries; a stage with fan_out or quorum can have one: "+
			"its children and votes don't choose", len(s.Next))
	}
	return known
}

// checkUndo checks where tasks go that fail in a stage, and reports whether that is known.
func (t TaskType) checkUndo(field string, s Stage, out *problems) (known bool) {
	switch next := s.undo().Next; {
	case s.Spreads() != nil:
		out.add(field, "can't be with fan_out or quorum: put a stage behind it that decides")
	case next == s.Name && s.Wait != nil:
		out.add(field+".next", "is the stage itself: a longer timeout waits longer")
	case next == s.Name:
		out.add(field+".next", "is the stage itself: retry has its attempts")
	case t.StageIndex(next) < 0:
		out.add(field+".next", "is %q, which is not a stage", cutName(next))
		return false
	}
	return true
}

// checkEnds checks that tasks can end, wherever they are.
func (t TaskType) checkEnds(out *problems) {
	ends := make([]bool, len(t.Stages)+1)
	ends[len(t.Stages)] = true
	reaches := func(to int) bool { return ends[to] }
	for range t.Stages { // the longest way passes as many stages
		for i := range t.Stages {
			ends[i] = ends[i] || slices.ContainsFunc(t.nexts(i), reaches)
		}
	}
	for i := range t.Stages {
		if !ends[i] {
			out.add(fmt.Sprintf("stages[%d].next", i), `leads to no end of the task: `+
				`add "finish", or a stage from which it can end`)
		}
	}
}

// checkOrdered refuses ways back to the first stage if flow keys are in order: a task in the first
// attempt of the first stage counts as one that is not begun, so others might overtake it.
func (t TaskType) checkOrdered(out *problems) {
	if t.Flow == nil || !t.Flow.Ordered {
		return
	}
	for i := range t.Stages {
		if slices.Contains(t.ways(i), 0) {
			out.add(fmt.Sprintf("stages[%d].next", i), "leads back to the first stage; with "+
				"flow.ordered no stage may: put another stage before it")
		}
	}
}
