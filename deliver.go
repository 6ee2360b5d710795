package asyncflow

import (
	"encoding/json"
	"slices"
)

// Bounds of what a stage is given besides the context.
const (
	MaxDeliverOutputs = 20      // outputs that a stage is given
	MaxDeliverBytes   = 1 << 20 // of documents in a delivery; also the default
)

// Deliver says what the deliveries of a stage carry of what came before, besides the context.
type Deliver struct {
	// Input adds the context as the task was submitted with it.
	Input bool `json:"input,omitempty"`
	// Outputs names stages: the latest output of each is added.
	Outputs []string `json:"outputs,omitempty"`
}

// Names returns the names of the documents: "" for the input, then names of stages.
func (d Deliver) Names() (names []string) {
	if d.Input {
		names = append(names, "")
	}
	return append(names, d.Outputs...)
}

// Delivers returns what the deliveries of a stage carry besides the context; nil: nothing.
func (t TaskType) Delivers(stage string) *Deliver {
	if i := t.StageIndex(stage); i >= 0 {
		return t.Stages[i].Deliver
	}
	return nil
}

func (d *Deliver) check(field string, t TaskType, out *problems) {
	if d == nil {
		return
	}
	if !d.Input && len(d.Outputs) == 0 {
		out.add(field, "has neither input nor outputs; leave it out, or say what to deliver")
	}
	if n := len(d.Outputs); n > MaxDeliverOutputs {
		out.add(field+".outputs", "has %d entries; the limit is %d", n, MaxDeliverOutputs)
		return
	}
	for i, name := range d.Outputs {
		switch {
		case t.StageIndex(name) < 0:
			out.add(field+".outputs", "has %.80q, which is not a stage of the type", name)
		case slices.Contains(d.Outputs[:i], name):
			out.add(field+".outputs", "has %q twice", name)
		}
	}
}

func (t TaskType) checkDeliverBytes(out *problems) {
	if n := t.MaxDeliverBytes; n < 0 || n > MaxDeliverBytes {
		out.add("max_deliver_bytes", "is %d; it must be 1 to %d", n, MaxDeliverBytes)
	}
}

// PastDocument is a document of a task's past in a delivery: see Deliver.
type PastDocument struct {
	Stage string // of the output; "": it is the input
	Bytes int    // 0: there is none
	// JSON are its bytes; nil: there is none, or it is too long for the delivery, which carries its
	// URL.
	JSON json.RawMessage
}

// Linked reports whether the delivery carries the URL of the document instead of its bytes.
func (d PastDocument) Linked() bool { return d.Bytes > 0 && d.JSON == nil }

// LongestInline returns the length up to which documents are part of a delivery that may carry most
// bytes of them. The shortest ones go first; of several with the same length all do, or none.
func LongestInline(lengths []int, most int) (longest int) {
	sorted := slices.Sorted(slices.Values(lengths))
	sum := 0
	for i, n := range sorted {
		if sum += n; sum > most {
			break
		}
		if i+1 == len(sorted) || sorted[i+1] > n {
			longest = n
		}
	}
	return longest
}
