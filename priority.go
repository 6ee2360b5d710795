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
