package asyncflow

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Bounds of a fan-out.
const (
	MaxShards          = 10_000
	MaxPointer         = 1024     // bytes of a JSON pointer
	MaxShared          = 64 << 10 // bytes of the part of a context that all children get
	MaxFanOutBytes     = 64 << 20 // bytes of what all children of a fan-out get together
	MaxInlineResults   = 1 << 20  // bytes of the results in the next stage's context
	MaxChildren        = 100_000  // of one task, by the quota children
	DefaultMaxChildren = 10_000
)

// FanOut makes children of a task that comes to a stage: one for each item of a list, or for each
// shard. They pass through that stage instead of their parent, which waits for the end of all, and
// then goes on to the next stage with their results.
type FanOut struct {
	// Items is a JSON pointer (RFC 6901) into the context, to an array. Each child gets one item as
	// its context.
	Items Pointer `json:"items,omitempty"`
	// Shards is the number of children with the same context, which differ by their index. Either
	// Items or Shards is set.
	Shards int `json:"shards,omitempty"`
	// Shared is a JSON pointer to a part of the context that is added to each child's delivery.
	Shared         string       `json:"shared,omitempty"`
	OnChildFailure ChildFailure `json:"on_child_failure,omitzero"`
	// MaxParallel is the most children of one parent under way at once; 0: no limit.
	MaxParallel int `json:"max_parallel,omitempty"`
	// Results says what the next stage gets of each child; "": ResultsOutputs.
	Results ResultsForm `json:"results,omitempty"`
	// Quorum is that of the stage: the children are votes. nil: they are not.
	Quorum *Quorum `json:"quorum,omitempty"`
	// Joined is set if the children are tasks that an attempt started: see Join.
	Joined *Joined `json:"joined,omitempty"`
}

// ResultsForm is what the stage after a fan-out gets of each child.
type ResultsForm string

const (
	// ResultsOutputs is the child's output; null for one without an output or that did not succeed.
	ResultsOutputs ResultsForm = "outputs"
	// ResultsSettled is an object: {index, id, status, output, error}.
	ResultsSettled ResultsForm = "settled"
)

// ChildFailure is what follows when children fail or are cancelled. The zero value is FailFast.
type ChildFailure struct {
	Policy  ChildFailurePolicy
	Count   int     // for Tolerate: that many may fail
	Percent float64 // for Tolerate: this share of the children may
}

// ChildFailurePolicy is a kind of ChildFailure.
type ChildFailurePolicy string

const (
	// FailFast cancels the other children, and fails the parent.
	FailFast ChildFailurePolicy = "fail_fast"
	// AllSettled waits for all children, whatever their ends.
	AllSettled ChildFailurePolicy = "all_settled"
	// Tolerate is FailFast for more failures than a number, or a share, of the children.
	Tolerate ChildFailurePolicy = "tolerate"
)

type toleratePolicy struct {
	Tolerate struct {
		Count   *int     `json:"count,omitempty"`
		Percent *float64 `json:"percent,omitempty"`
	} `json:"tolerate"`
}

// MarshalJSON writes the name of a policy, or {"tolerate": {"count": …}} or {"tolerate":
// {"percent": …}}.
func (f ChildFailure) MarshalJSON() ([]byte, error) {
	if f.Policy != Tolerate {
		return json.Marshal(f.Policy)
	}
	var t toleratePolicy
	if f.Percent > 0 {
		t.Tolerate.Percent = &f.Percent
	} else {
		t.Tolerate.Count = &f.Count
	}
	return json.Marshal(t)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (f *ChildFailure) UnmarshalJSON(b []byte) error {
	*f = ChildFailure{}
	if json.Unmarshal(b, &f.Policy) == nil {
		return nil
	}
	var t toleratePolicy
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil || (t.Tolerate.Count == nil) == (t.Tolerate.Percent == nil) {
		return fmt.Errorf(
			`must be "fail_fast", "all_settled" or {"tolerate": {"count": …}} (or "percent")`)
	}
	f.Policy = Tolerate
	if t.Tolerate.Count != nil {
		f.Count = *t.Tolerate.Count
	} else {
		f.Percent = *t.Tolerate.Percent
	}
	return nil
}

// TooMany reports whether more of count children failed than are tolerated.
func (f ChildFailure) TooMany(failed, count int) bool {
	switch f.Policy {
	case AllSettled:
		return false
	case Tolerate:
		return failed > f.Count && float64(failed)*100 > f.Percent*float64(count)
	}
	return failed > 0
}

func (f ChildFailure) check(field string, out *problems) {
	switch f.Policy {
	case "", FailFast, AllSettled:
	case Tolerate:
		if f.Count < 0 || f.Percent < 0 || f.Percent > 100 {
			out.add(field+".tolerate", "must have a count of 0 or more, or a percent of 0 to 100")
		}
	default:
		out.add(field, "is %q; it must be fail_fast, all_settled or {tolerate: …}", f.Policy)
	}
}

func (f *FanOut) check(field string, out *problems) {
	if f == nil {
		return
	}
	switch {
	case f.Quorum != nil:
		out.add(field+".quorum", "is a field of the stage")
	case f.Joined != nil: // see Join
	case f.Items == "" && f.Shards == 0:
		out.add(field+".items", "is required, or shards")
	case f.Items != "" && f.Shards != 0:
		out.add(field+".items", "and shards exclude each other")
	case f.Shards < 0 || f.Shards > MaxShards:
		out.add(field+".shards", "is %d; it must be 1 to %d", f.Shards, MaxShards)
	}
	if f.Items != WholeContext {
		checkPointer(field+".items", string(f.Items), out)
	}
	checkPointer(field+".shared", f.Shared, out)
	if f.MaxParallel < 0 || f.MaxParallel > MaxChildren {
		out.add(field+".max_parallel", "is %d; it must be 0 (no limit) to %d", f.MaxParallel,
			MaxChildren)
	}
	f.OnChildFailure.check(field+".on_child_failure", out)
	switch f.Results {
	case "", ResultsOutputs, ResultsSettled:
	default:
		out.add(field+".results", "is %q; it must be outputs or settled", f.Results)
	}
}

// FansOut returns the fan-out of the stage of a leased task; nil: the task passes through the stage
// by itself.
func (t TaskType) FansOut(l Lease) *FanOut {
	if i := t.StageIndex(l.Stage); i >= 0 && l.Options.Child == nil {
		return t.Stages[i].Spreads()
	}
	return nil
}

// Spreads returns the fan-out of tasks that come to the stage; nil: they pass through it by
// themselves.
func (s Stage) Spreads() *FanOut {
	if s.Quorum != nil {
		return &FanOut{Quorum: s.Quorum}
	}
	return s.FanOut
}

// HasFanOut reports whether tasks of the type make children in a stage.
func (t TaskType) HasFanOut() bool {
	for i := range t.Stages {
		if t.Stages[i].Spreads() != nil {
			return true
		}
	}
	return false
}

// CountNew returns how many tasks a new task with a context makes, as far as that is known
// beforehand: itself, its shards and the votes that it needs in each stage, and the children over
// the items of its context in the first one, but none in stages that it may visit again. A stage
// that would make more children than most counts none, because the task fails there.
func (t TaskType) CountNew(context json.RawMessage, most int) int {
	n := 1
	if !t.HasFanOut() {
		return n
	}
	again := t.revisited()
	for i := range t.Stages {
		if again.has(i) {
			continue // each visit makes its own children
		}
		if children := t.Stages[i].countNew(context, i == 0); children <= most {
			n += children
		}
	}
	return n
}

// countNew returns how many children a new task makes in the stage.
func (s Stage) countNew(context json.RawMessage, first bool) int {
	switch rule := s.Spreads(); {
	case rule == nil:
		return 0
	case rule.Quorum != nil:
		return rule.Quorum.Votes
	case rule.Items == "":
		return rule.Shards
	case first:
		work, err := rule.Spread(context)
		if err == nil && work.Stored == (StoredResults{}) { // a new task is without results yet
			return work.Count
		}
	}
	return 0
}

// Child says which part of its parent's work a child is.
type Child struct {
	Parent int64           `json:"parent"`           // the number of its parent, of its type
	Seq    int             `json:"seq"`              // of the parent's token row while it waits
	Index  int             `json:"index"`            // from 0
	Count  int             `json:"count"`            // of all children
	Shard  bool            `json:"shard,omitempty"`  // it is a shard
	Vote   bool            `json:"vote,omitempty"`   // it is a vote
	Shared json.RawMessage `json:"shared,omitempty"` // the part that FanOut.Shared points to
}

// Children counts the children of a task in one stage, by their status.
type Children struct {
	Total, Waiting, Pending, Running, Succeeded, Failed, Cancelled int
}

// TreeCounts counts the tasks below a task if its children make children.
type TreeCounts struct {
	Levels                              int // below the task
	Total, Succeeded, Failed, Cancelled int
	AtLeast                             bool // there are more: not all were counted
}

// Spread is the work of a task that fans out.
type Spread struct {
	Count  int
	Shared json.RawMessage
	// Stored are the results that are the items; zero: the items are in the context.
	Stored StoredResults
	list   json.RawMessage // nil: shards or votes, with the task's context
}

// Items returns up to n items from an index on. Shards and votes have none.
func (s Spread) Items(from, n int) (items []json.RawMessage) {
	w := JSONWalk{Doc: s.list}
	w.Enter()
	for i := 0; len(items) < n && w.Next(); i++ {
		if item := w.Skip(); i >= from {
			items = append(items, item)
		}
	}
	return items
}

// Spread returns the work of a task with a context, which is valid JSON. An error says what was
// found instead.
func (f FanOut) Spread(context json.RawMessage) (s Spread, err error) {
	if f.Shared != "" {
		if s.Shared, err = PointTo(context, f.Shared); err != nil {
			return s, fmt.Errorf("fan_out.shared: %w", err)
		}
		if len(s.Shared) > MaxShared {
			return s, fmt.Errorf("fan_out.shared: %s has %d bytes; the limit is %d", f.Shared,
				len(s.Shared), MaxShared)
		}
	}
	each := len(s.Shared)
	if s.Count = f.Shards; f.Quorum != nil {
		s.Count = f.Quorum.most()
	}
	if f.Items == "" {
		each += len(context)
	} else if err := s.takeItems(f.Items, context); err != nil {
		return s, fmt.Errorf("fan_out.items: %w", err)
	}
	if bytes := each * s.Count; bytes > MaxFanOutBytes {
		return s, fmt.Errorf("each of the %d children would get a copy of %d bytes, together %d; "+
			"the limit is %d", s.Count, each, bytes, MaxFanOutBytes)
	}
	return s, nil
}

// takeItems finds the items of a context: an array or, by their URL only, stored results.
func (s *Spread) takeItems(items Pointer, context json.RawMessage) error {
	list, name, err := items.partIn(context)
	if err != nil {
		stored, count := items.stored(context)
		if count == 0 {
			return err
		}
		s.Stored, s.Count = stored, count
		return nil
	}
	w := JSONWalk{Doc: list}
	if w.Enter() != '[' {
		return fmt.Errorf("%s is %s; it must be an array", name, kindOf(list))
	}
	for s.list = list; w.Next(); s.Count++ {
		w.Skip()
	}
	return nil
}
