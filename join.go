package asyncflow

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// Join makes a task wait for the tasks that its attempt starts, and go on with their results, as
// after a fan-out. The zero value stands for all defaults.
type Join struct {
	OnChildFailure ChildFailure `json:"on_child_failure,omitzero"`
	// MaxParallel is the most of these tasks under way at once; 0: no limit.
	MaxParallel int         `json:"max_parallel,omitempty"`
	Results     ResultsForm `json:"results,omitempty"` // "": ResultsOutputs
}

// JoinOption is a Join as a worker writes it: true, false or an object.
type JoinOption struct{ *Join }

// MarshalJSON writes an object, true for one without settings, or false for none.
func (j JoinOption) MarshalJSON() ([]byte, error) {
	switch {
	case j.Join == nil:
		return []byte("false"), nil
	case *j.Join == Join{}:
		return []byte("true"), nil
	}
	return json.Marshal(j.Join)
}

// UnmarshalJSON reads what MarshalJSON writes; null is false.
func (j *JoinOption) UnmarshalJSON(b []byte) error {
	j.Join = nil
	switch string(b) {
	case "null", "false":
		return nil
	case "true":
		j.Join = &Join{}
		return nil
	}
	var join Join
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&join); err != nil {
		return fmt.Errorf(
			"must be true, false or {on_child_failure?, max_parallel?, results?}: %v", err)
	}
	j.Join = &join
	return nil
}

// IsZero reports whether there is none.
func (j JoinOption) IsZero() bool { return j.Join == nil }

// NoResults is the context of the stage after no children.
var NoResults = json.RawMessage(
	`{"count":0,"succeeded":0,"failed":0,"cancelled":0,"results":[]}`)

// Check checks the settings.
func (j *Join) Check() error {
	if j == nil {
		return nil
	}
	var out problems
	j.rule().check("join", &out)
	return out.err()
}

// Joins sets the join of an outcome, once its other fields are set. Without tasks to start, the
// stage is done with empty results.
func (o *Outcome) Joins(join *Join) error {
	if join == nil {
		return nil
	}
	if err := join.Check(); err != nil {
		return err
	}
	if len(o.Output) > 0 {
		return InvalidField("output", "and join exclude each other: the next stage gets the "+
			"results of the tasks in place of an output")
	}
	if len(o.Spawn) == 0 {
		o.Output = NoResults
		return nil
	}
	o.Join = join
	return nil
}

// rule returns the fan-out that the tasks are.
func (j Join) rule() *FanOut {
	return &FanOut{OnChildFailure: j.OnChildFailure, MaxParallel: j.MaxParallel,
		Results: j.Results, Joined: &Joined{}}
}

// Joined is the way on of a task that waits for the tasks that it started, as its worker chose it.
type Joined struct {
	Next   string `json:"next,omitempty"`
	Finish bool   `json:"finish,omitempty"`
}

// JoinedFanOut returns how a task with an outcome fans out: by the tasks that it starts. nil: it
// doesn't wait for them.
func (o *Outcome) JoinedFanOut() *FannedOut {
	if o.Join == nil || o.Kind != OutcomeDone {
		return nil
	}
	rule := o.Join.rule()
	rule.Joined.Next = o.Next
	rule.Joined.Finish = o.Finish
	return &FannedOut{FanOut: *rule, Count: len(o.Spawn)}
}

// Awaited names the stage of a task that waits for its children.
type Awaited struct {
	Type int32 `json:"type"` // the number of its type
	ID   int64 `json:"id"`
	Seq  int   `json:"seq"` // of its token row while it waits
}

// Part says which of the tasks that its parent waits for a task is.
type Part struct {
	Awaited
	Index int `json:"index"` // in the list of its parent's worker
	Count int `json:"count"` // of that list
	Rank  int `json:"slot"`  // in the order in which they are made: by type
}

// Awaits returns the waiting stages that keep the task from beginning when they are paused or over:
// of its parent, of the parent of that, and so on. number is the number of its type.
func (o Options) Awaits(number int32) (all []Awaited) {
	if c := o.Child; c != nil {
		all = append(all, Awaited{number, c.Parent, c.Seq})
	}
	if by := o.Spawned; by != nil {
		if by.Part != nil {
			all = append(all, by.Part.Awaited)
		}
		all = append(all, by.Above...)
	}
	return all
}

// IsAwaited reports whether there is any in Awaits.
func (o Options) IsAwaited() bool {
	return o.Child != nil || o.Spawned != nil && (o.Spawned.Part != nil || len(o.Spawned.Above) > 0)
}

// ParentWaits returns the stage in which the task's parent waits for it. number is the number of
// the task's type.
func (o Options) ParentWaits(number int32) (a Awaited, waits bool) {
	switch {
	case o.Child != nil:
		return Awaited{number, o.Child.Parent, o.Child.Seq}, true
	case o.Spawned != nil && o.Spawned.Part != nil:
		return o.Spawned.Part.Awaited, true
	}
	return a, false
}

// OrderByType returns the indexes of tasks by the names of their types; nil: they are in that
// order.
func OrderByType(tasks []SpawnedTask) []int32 {
	byName := func(a, b int32) int {
		return bytes.Compare([]byte(tasks[a].Type), []byte(tasks[b].Type))
	}
	order := make([]int32, len(tasks))
	for i := range order {
		order[i] = int32(i)
	}
	if slices.IsSortedFunc(order, byName) {
		return nil
	}
	slices.SortStableFunc(order, byName)
	return order
}

// SpawnHash tells what outcomes start apart.
func (o *Outcome) SpawnHash() []byte {
	text := SpawnText(o.Spawn)
	if made := o.JoinedFanOut(); made != nil {
		rule, err := json.Marshal(made.FanOut)
		if err != nil {
			panic(err) // numbers and strings
		}
		text += string(rule)
	}
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}
