package asyncflow

import (
	"bytes"
	"encoding/json"
)

// OptionChange is what a change made of an option of a task. Before and After are JSON; nil: the
// task was, or is, without one of its own.
type OptionChange struct {
	Field         string // priority, retry, lifetime or claim
	Before, After json.RawMessage
}

// ChangesFrom returns how the options that a change can change differ from earlier ones.
func (o Options) ChangesFrom(earlier Options) (all []OptionChange) {
	for _, c := range []struct {
		field         string
		before, after any
	}{
		{"priority", earlier.Priority, o.Priority},
		{"retry", earlier.Retry, o.Retry},
		{"lifetime", earlier.Lifetime.times(), o.Lifetime.times()},
		{"claim", earlier.Claim, o.Claim},
	} {
		before, after := optionJSON(c.before), optionJSON(c.after)
		if !bytes.Equal(before, after) {
			all = append(all, OptionChange{Field: c.field, Before: before, After: after})
		}
	}
	return all
}

// times returns the times of a lifetime alone; nil: there is none.
func (l *Lifetime) times() *Lifetime {
	if l == nil {
		return nil
	}
	return Lifetime{StartBy: l.StartBy, EndBy: l.EndBy}.orNil()
}

// optionJSON returns an option as JSON; nil: there is none.
func optionJSON(option any) json.RawMessage {
	doc, err := json.Marshal(option)
	if err != nil {
		panic(err) // it was read from JSON
	}
	if string(doc) == "null" {
		return nil
	}
	return doc
}
