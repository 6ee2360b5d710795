package workercheck

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/asyncflow/asyncflow"
)

// choice is how a worker lets a task go on; the zero value: it names nothing. Whether the stage
// allows it is for the node to say, which knows the type.
type choice struct {
	next   string // the stage
	finish bool
}

// maxNextStage is the most characters of next_stage.
const maxNextStage = 100

// check returns what a node would say against a choice of any type.
func (c choice) check() error {
	switch {
	case c.next != "" && c.finish:
		return errors.New("finish and next_stage exclude each other")
	case utf8.RuneCountInString(c.next) > maxNextStage:
		return fmt.Errorf("next_stage is longer than %d characters", maxNextStage)
	}
	return nil
}

// String returns the choice as a part of a sentence; "": it names nothing.
func (c choice) String() string {
	switch {
	case c.finish:
		return "finish: true"
	case c.next != "":
		return fmt.Sprintf("next_stage: %q", c.next)
	}
	return ""
}

// confirms reports whether a later report with the choice c counts as one with an earlier choice.
func (c choice) confirms(earlier choice) bool { return c == choice{} || c == earlier }

// choiceOf returns how a worker lets a task go on with an outcome.
func choiceOf(o asyncflow.Outcome) choice { return choice{o.Next, o.Finish} }

// startSame reports whether two outcomes start the same tasks, and wait for them in the same way.
func startSame(a, b asyncflow.Outcome) bool { return bytes.Equal(a.SpawnHash(), b.SpawnHash()) }

// startText says which tasks an outcome starts; "": none.
func startText(o asyncflow.Outcome) string {
	switch n := len(o.Spawn); {
	case n == 0:
		return ""
	case o.Join != nil:
		return fmt.Sprintf("spawn of %d tasks and join", n)
	default:
		return fmt.Sprintf("spawn of %d tasks", n)
	}
}

// checkSpawn returns what a node would say against the tasks of an outcome in a stage that may
// start tasks of all types.
func checkSpawn(o asyncflow.Outcome) error {
	stage := asyncflow.Stage{Name: "any"}
	for _, s := range o.Spawn {
		if !slices.Contains(stage.Spawn, s.Type) {
			stage.Spawn = append(stage.Spawn, s.Type)
		}
	}
	t := asyncflow.TaskType{Stages: []asyncflow.Stage{stage}}
	return t.CheckSpawn(asyncflow.Lease{Stage: stage.Name}, o)
}

// done returns the outcome of a delivery that is done.
func (e ending) done() asyncflow.Outcome {
	if e.attempt == nil {
		return e.outcome
	}
	last, _ := lastWord(e.attempt.seen())
	return last.done
}
