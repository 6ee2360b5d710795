package asyncflow

import (
	"encoding/json"
	"fmt"
	"time"
)

// MaxPriority is the largest head start, in seconds: a year.
const MaxPriority = 365 * 24 * 3600

// Priority is a head start in seconds: one for all stages, or a list with one entry per stage,
// in their order. (The last entry applies to stages that were added later.) Empty means none.
type Priority []int

// ForStage returns the head start of the stage at an index, and whether there
// is one.
func (p Priority) ForStage(index int) (time.Duration, bool) {
	if len(p) == 0 {
		return 0, false
	}
	return time.Duration(p[min(index, len(p)-1)]) * time.Second, true
}

// MarshalJSON writes a number, or a list of several.
func (p Priority) MarshalJSON() ([]byte, error) {
	if len(p) == 1 {
		return json.Marshal(p[0])
	}
	return json.Marshal([]int(p))
}

// UnmarshalJSON reads a number or a list of numbers.
func (p *Priority) UnmarshalJSON(b []byte) error {
	var n int
	if json.Unmarshal(b, &n) == nil && string(b) != "null" {
		*p = Priority{n}
		return nil
	}
	list, ok := readList[int](b)
	if !ok {
		return fmt.Errorf("must be a whole number of seconds or a list of them, not %s", excerpt(b))
	}
	*p = list
	return nil
}

// readList reads a list with entries, and no null.
func readList[T any](b []byte) (list []T, ok bool) {
	var entries []*T
	if err := json.Unmarshal(b, &entries); err != nil || len(entries) == 0 {
		return nil, false
	}
	for _, entry := range entries {
		if entry == nil {
			return nil, false
		}
		list = append(list, *entry)
	}
	return list, true
}

// CheckPriority refuses a list without exactly one entry per stage of the type. A list of one
// applies to all stages.
func (t TaskType) CheckPriority(p Priority) error {
	if len(p) > 1 && len(p) != len(t.Stages) {
		return InvalidField("priority",
			"has %d entries; %s takes one number, or a list of %d: one for each stage",
			len(p), t.Name, len(t.Stages))
	}
	return nil
}

func (p Priority) check(field string, out *problems) {
	if len(p) > MaxStages {
		out.add(field, "has %d entries; the limit is %d", len(p), MaxStages)
		return
	}
	for _, n := range p {
		if n < 0 || n > MaxPriority {
			out.add(field, "is %d; it must be 0 to %d seconds (a year)", n, MaxPriority)
		}
	}
}

// Soon is how far ahead of its order_time a task may be in ready. Tasks that are due later are
// in wait, and are promoted when they are due this soon, so that an old ready table empties
// within about a minute of its roll.
const Soon = time.Minute

// SubmitOrder returns the order_time of a new task: now minus the head start of its first
// stage. A delayed task is ordered by the time it is due; its priority doesn't apply.
func SubmitOrder(t TaskType, n NewTask, now time.Time) time.Time {
	switch {
	case n.Delay.Std() > 0:
		return now.Add(n.Delay.Std())
	case n.RunAt.After(now):
		return n.RunAt
	default:
		return EnterOrder(t, 0, n.Options, now)
	}
}

// EnterOrder returns the order_time of a task that enters a stage now.
func EnterOrder(t TaskType, stage int, o Options, now time.Time) time.Time {
	return now.Add(-headStart(t, stage, o))
}

// headStart returns the head start of a task in a stage: its own, or else the stage's. A
// removed stage (-1) gives none.
func headStart(t TaskType, stage int, o Options) time.Duration {
	if stage < 0 {
		return 0
	}
	if head, ok := o.Priority.ForStage(stage); ok {
		return head
	}
	return time.Duration(t.Stages[stage].Priority) * time.Second
}
