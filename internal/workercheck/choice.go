package workercheck

import (
	"encoding/json"
	"errors"
	"fmt"
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

// spawn returns the tasks that a delivery starts, as JSON; "[]": none.
func (e ending) spawn() string {
	if e.attempt == nil {
		return asyncflow.SpawnText(e.outcome.Spawn)
	}
	last, _ := lastWord(e.attempt.seen())
	return last.spawn
}

// spawns returns how many tasks a delivery starts.
func (e ending) spawns() int {
	var tasks []asyncflow.SpawnedTask
	_ = json.Unmarshal([]byte(e.spawn()), &tasks) // it was read before
	return len(tasks)
}

// choice returns how the worker lets a task go on whose delivery is done.
func (e ending) choice() choice {
	if e.attempt == nil {
		return choice{e.outcome.Next, e.outcome.Finish}
	}
	last, _ := lastWord(e.attempt.seen())
	return last.choice
}
