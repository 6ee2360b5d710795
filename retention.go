package asyncflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Retention is how long final tasks are kept, and how long their contents are. In JSON it is a
// duration, that of the tasks, or an object.
type Retention struct {
	// Tasks is the minimum time for which final tasks are kept; zero: DefaultRetention.
	Tasks Duration
	// Context is how long after its end the contents of a task are erased; zero: they are kept as
	// long as the task.
	Context Duration
}

// retentionTimes is how a Retention with a time for contents is written.
type retentionTimes struct {
	Tasks   Duration `json:"tasks,omitzero"`
	Context Duration `json:"context,omitzero"`
}

// IsZero reports whether r says nothing.
func (r Retention) IsZero() bool { return r.Tasks.IsZero() && r.Context.IsZero() }

// String returns r in words.
func (r Retention) String() string {
	if r.Context.IsZero() {
		return r.Tasks.Text()
	}
	return r.Tasks.Text() + ", contents " + r.Context.Text()
}

// MarshalJSON writes a duration, or an object if contents are erased earlier.
func (r Retention) MarshalJSON() ([]byte, error) {
	if r.Context.IsZero() {
		return json.Marshal(r.Tasks)
	}
	return json.Marshal(retentionTimes(r))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (r *Retention) UnmarshalJSON(b []byte) error {
	*r = Retention{}
	if text := bytes.TrimSpace(b); len(text) == 0 || text[0] != '{' {
		var duration string
		if json.Unmarshal(b, &duration) != nil {
			duration = string(text)
		}
		return r.Tasks.UnmarshalText([]byte(duration))
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	into := map[string]*Duration{"tasks": &r.Tasks, "context": &r.Context}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		d := into[name]
		if d == nil {
			return fmt.Errorf("has the unknown field %q; it knows tasks and context", name)
		}
		if err := json.Unmarshal(fields[name], d); err != nil {
			return fmt.Errorf("%s must be a duration such as 7d, not %s", name,
				excerpt(fields[name]))
		}
	}
	return nil
}

// Kept returns how long the type keeps tasks and their contents.
func (t TaskType) Kept() Retention { return Retention{t.Retention, t.ContextRetention} }

// checkRetention checks how long tasks and their contents are kept.
func (t TaskType) checkRetention(out *problems) {
	checkDuration(out, "retention", t.Retention, MinRetention, MaxRetention)
	if t.ContextRetention.IsZero() {
		return
	}
	checkDuration(out, "retention.context", t.ContextRetention, MinRetention, MaxRetention)
	if t.ContextRetention.Std() > t.Retention.Std() {
		out.add("retention.context", "is %s; tasks are kept for %s, and contents for no longer",
			t.ContextRetention.Text(), t.Retention.Text())
	}
}
