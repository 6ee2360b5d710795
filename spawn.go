package asyncflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of the tasks that attempts start.
const (
	MaxSpawn      = 10_000 // tasks that one attempt starts
	MaxBatchSpawn = 50_000 // tasks that the attempts of one batch start in one answer
	MaxSpawnTypes = 50     // types of the tasks that a stage may start
	// MaxStarted bounds the tasks that one task starts in all its attempts, visits and redrives.
	MaxStarted = 100_000
	// MaxTree bounds the children of a task in one stage with their children, and so on.
	MaxTree = 100_000
	// MaxDepth bounds how many tasks in a row start one another: a type may start its own.
	MaxDepth = 8
)

// SpawnedTask is a task that an attempt starts, as its worker writes it. It exists if the attempt
// counts as done.
type SpawnedTask struct {
	Type      string          `json:"type"`
	Context   json.RawMessage `json:"context"`
	Priority  Priority        `json:"priority,omitempty"`
	RunAt     time.Time       `json:"run_at,omitzero"`
	Delay     Duration        `json:"delay,omitzero"`
	Retry     *RetryPolicy    `json:"retry,omitempty"`
	Key       string          `json:"key,omitempty"`
	KeyWindow Duration        `json:"key_window,omitzero"`
	FlowKey   string          `json:"flow_key,omitempty"`
	Claim     *ClaimRules     `json:"claim,omitempty"`
	StartBy   Deadline        `json:"start_by,omitzero"`
	EndBy     Deadline        `json:"end_by,omitzero"`
	Labels                    // none: those of the task that starts it
}

// Spawned says which task started another one.
type Spawned struct {
	// Parent is the id of that task. A child of a fan-out, which no attempt started, takes only the
	// depth of its parent.
	Parent string `json:"parent,omitempty"`
	Depth  int    `json:"depth"` // how many tasks in a row started one another
	// Part is its part of what its parent waits for; nil: the parent doesn't wait for it.
	Part *Part `json:"part,omitempty"`
	// Above are the stages that wait for the task's parent and for its ancestors, from below.
	Above []Awaited `json:"above,omitempty"`
	// PriorityAt is when a worker named the task's priority or, without one, that of the nearest
	// task above with a named priority: older changes above don't count below the task. Zero: no
	// worker named one, or a node of an earlier version made the task.
	PriorityAt time.Time `json:"priority_at,omitzero"`
}

// NewTask returns the task to submit.
func (s SpawnedTask) NewTask(by *Spawned) NewTask {
	return NewTask{Type: s.Type, Context: s.Context, RunAt: s.RunAt, Delay: s.Delay,
		StartBy: s.StartBy, EndBy: s.EndBy, KeyWindow: KeyWindow{time: s.KeyWindow},
		Options: Options{Priority: s.Priority, Retry: s.Retry, Key: s.Key, FlowKey: s.FlowKey,
			Spawned: by, Claim: s.Claim, Labels: s.Labels}}
}

// CheckSpawned checks the tasks that an attempt starts. Their contexts must already be JSON, each
// with at most maxContext bytes. now is the database's time.
func CheckSpawned(tasks []SpawnedTask, now time.Time, maxContext int) error {
	if len(tasks) > MaxSpawn {
		return InvalidField("spawn", "has %d entries; the limit is %d", len(tasks), MaxSpawn)
	}
	for i, s := range tasks {
		field := fmt.Sprintf("spawn[%d]", i)
		if len(s.Context) == 0 {
			return InvalidField(field+".context", "is required")
		}
		if err := s.NewTask(nil).Validate(now, maxContext); err != nil {
			return within(field, err)
		}
	}
	return nil
}

// within returns an error in which the fields are below a field.
func within(field string, err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	inner := *e
	inner.Fields = slices.Clone(e.Fields)
	for i := range inner.Fields {
		inner.Fields[i].Field = field + "." + inner.Fields[i].Field
	}
	return &inner
}

// SpawnText returns the stored form of tasks: a JSON array, with the contexts byte for byte, and
// without days and weeks: a node of an earlier version may make the tasks.
func SpawnText(tasks []SpawnedTask) string {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, s := range tasks {
		if i > 0 {
			b.WriteByte(',')
		}
		doc := s.Context
		s.Context = json.RawMessage("0")
		s.Delay = s.Delay.inHours()
		s.KeyWindow = s.KeyWindow.inHours()
		head, err := json.Marshal(s)
		if err != nil {
			panic(err) // numbers and strings
		}
		before, after, _ := bytes.Cut(head, []byte(`"context":0`))
		b.Write(before)
		b.WriteString(`"context":`)
		b.Write(doc)
		b.Write(after)
	}
	b.WriteByte(']')
	return b.String()
}

// spawnedOverhead is about how many bytes a task takes in memory beside its texts.
const spawnedOverhead = 200

// SpawnBytes returns about how many bytes the tasks take that an attempt starts.
func (o *Outcome) SpawnBytes() (bytes int) {
	for i := range o.Spawn {
		s := &o.Spawn[i]
		bytes += len(s.Context) + len(s.Type) + len(s.Key) + len(s.FlowKey) + spawnedOverhead
	}
	return bytes
}

// SpawnDepth returns the depth of the tasks that a task with these options starts.
func (o Options) SpawnDepth() int {
	if o.Spawned == nil {
		return 1
	}
	return o.Spawned.Depth + 1
}

// Spawns reports whether attempts of the type may start tasks.
func (t TaskType) Spawns() bool {
	return slices.ContainsFunc(t.Stages, func(s Stage) bool { return len(s.Spawn) > 0 })
}

// CheckSpawn checks whether an attempt may start the tasks of its outcome. Its error is CodeSpawn,
// and names what is allowed.
func (t TaskType) CheckSpawn(l Lease, o Outcome) error {
	switch {
	case len(o.Spawn) == 0 || o.Kind != OutcomeDone:
		return nil
	case l.Options.Child != nil && l.Options.Child.Vote:
		return Errorf(CodeSpawn, "a vote starts no tasks: put a stage behind the vote, which "+
			"reads the decision")
	case l.Options.SpawnDepth() > MaxDepth:
		return Errorf(CodeSpawn, "%d tasks in a row have started one another, which is the limit: "+
			"this one can't start another", MaxDepth)
	}
	name, _ := t.Mapped(l.Stage, l.Attempt)
	stage := t.StageIndex(name)
	if stage < 0 {
		return Errorf(CodeSpawn, "the stage %q is gone", l.Stage)
	}
	allowed := t.Stages[stage].Spawn
	for i := range o.Spawn {
		if o.Join != nil && o.Spawn[i].Key != "" {
			return Errorf(CodeSpawn, "spawn[%d].key can't be given with join: a task with the key "+
				"may exist, and has one parent at most", i)
		}
		if key := o.Spawn[i].FlowKey; o.Join != nil && key != "" && o.Spawn[i].Type == t.Name &&
			key == l.Options.FlowKey {
			return Errorf(CodeSpawn, "spawn[%d].flow_key is that of the task, which keeps it "+
				"while it waits for its children", i)
		}
		if slices.Contains(allowed, o.Spawn[i].Type) {
			continue
		}
		must := "the stage has no spawn"
		if len(allowed) > 0 {
			must = "it must be " + orList(allowed)
		}
		return Errorf(CodeSpawn, "spawn[%d].type %q is not allowed in stage %q: %s", i,
			cutName(o.Spawn[i].Type), name, must)
	}
	return nil
}

// orList returns quoted names, joined by or.
func orList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(quoted, " or ")
}

// checkSpawn checks the names of the types that tasks in the stage may start. A type need not
// exist yet: two types may start one another.
func (s Stage) checkSpawn(field string, out *problems) {
	if len(s.Spawn) > MaxSpawnTypes {
		out.add(field, "has %d entries; the limit is %d", len(s.Spawn), MaxSpawnTypes)
		return
	}
	for i, name := range s.Spawn {
		entry := fmt.Sprintf("%s[%d]", field, i)
		if err := CheckName(name); err != nil {
			out.add(entry, "%v", err)
		}
		if slices.Contains(s.Spawn[:i], name) {
			out.add(entry, "is %q, which an earlier entry is", name)
		}
	}
	if s.Quorum != nil && len(s.Spawn) > 0 {
		out.add(field, "can't be given with quorum: votes start no tasks")
	}
}

// Refused returns an outcome as it counts if the worker's answer isn't allowed: a failed attempt
// with the code of the error.
func (o Outcome) Refused(err error) Outcome {
	text := err.Error()
	if e, ok := err.(*Error); ok {
		text = e.Detail()
	}
	o.Kind = OutcomeFailed
	o.Error = string(CodeOf(err)) + ": " + text
	o.Output, o.Next, o.Finish, o.Spawn, o.Join = nil, "", false, nil, nil
	return o
}
