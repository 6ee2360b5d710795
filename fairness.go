package asyncflow

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Bounds of the weights of flow keys.
const (
	MaxFlowWeights = 1000 // keys with a weight
	MaxFlowWeight  = 1000
)

// Fairness is how the flow keys of a type share its capacity. It is written true, false,
// "key_first" or "priority_first"; true means "key_first".
type Fairness string

const (
	// FairNot: the tasks of all keys run in one order.
	FairNot Fairness = ""
	// FairKeyFirst: keys with due tasks take turns; order and priority count within a key.
	FairKeyFirst Fairness = "key_first"
	// FairPriorityFirst: like FairKeyFirst, but while the first due task of the type is ahead by
	// its priority, it goes before the turns.
	FairPriorityFirst Fairness = "priority_first"
)

// MarshalJSON writes true, false or "priority_first".
func (f Fairness) MarshalJSON() ([]byte, error) {
	switch f {
	case FairNot:
		return []byte("false"), nil
	case FairKeyFirst:
		return []byte("true"), nil
	}
	return json.Marshal(string(f))
}

// UnmarshalJSON reads true, false, "key_first" or "priority_first".
func (f *Fairness) UnmarshalJSON(b []byte) error {
	var fair bool
	if json.Unmarshal(b, &fair) == nil && string(b) != "null" {
		*f = FairNot
		if fair {
			*f = FairKeyFirst
		}
		return nil
	}
	var name string
	if json.Unmarshal(b, &name) != nil || name == "" || !Fairness(name).known() {
		return fmt.Errorf("must be %s, not %s", fairnessNames, excerpt(b))
	}
	*f = Fairness(name)
	return nil
}

const fairnessNames = `true, false, "key_first" or "priority_first"`

func (f Fairness) known() bool {
	return f == FairNot || f == FairKeyFirst || f == FairPriorityFirst
}

// checkFair checks the fairness and the weights.
func (f *Flow) checkFair(out *problems) {
	if !f.Fair.known() {
		out.add("flow.fair", "is %q; it must be %s", excerpt([]byte(f.Fair)), fairnessNames)
	}
	if len(f.Weights) > 0 && f.Fair == FairNot {
		out.add("flow.weights", "needs flow.fair")
	}
	if len(f.Weights) > MaxFlowWeights {
		out.add("flow.weights", "has %d keys; the limit is %d", len(f.Weights), MaxFlowWeights)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(f.Weights)) {
		field := "flow.weights." + excerpt([]byte(key))
		if key == "" || len(key) > MaxFlowKey {
			out.add(field, "is a key of %d bytes; a flow key has 1 to %d", len(key), MaxFlowKey)
		}
		if weight := f.Weights[key]; weight < 1 || weight > MaxFlowWeight {
			out.add(field, "is %d; it must be 1 to %d", weight, MaxFlowWeight)
		}
	}
}

// Weight returns how many tasks a flow key may start in its turn. "" are the tasks without a key:
// they share one turn.
func (f *Flow) Weight(key string) int {
	if weight, ok := f.Weights[key]; ok {
		return weight
	}
	return 1
}

// Blocks reports whether the flow may keep a due task of a key from running: it sets limits, or an
// order. Fairness alone blocks no task.
func (f *Flow) Blocks() bool { return f != nil && (f.Ordered || f.Limits != Limits{}) }

// Fair reports whether the type's flow keys take turns.
func (t TaskType) Fair() bool { return t.Flow != nil && t.Flow.Fair != FairNot }

// PriorityFirst reports whether tasks with a head start go before the turns of flow keys.
func (t TaskType) PriorityFirst() bool {
	return t.Flow != nil && t.Flow.Fair == FairPriorityFirst
}
