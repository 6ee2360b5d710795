package workercheck

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow"
)

// fieldsOfStages sends a second attempt with the fields that only some deliveries have: what the
// stage asks for by deliver, and what the first attempt left.
func fieldsOfStages(ctx context.Context, r *rehearsal) finding {
	d := r.delivery()
	d.Lease.Seq, d.Lease.Attempt = 2, 2
	d.Lease.Checkpoint = r.cfg.Checkpoint
	if len(d.Lease.Past) == 0 {
		d.Lease.Past = past(r.cfg.Context, map[string]json.RawMessage{r.cfg.Stage: nil})
	}
	return allDone(r.send(ctx, d)...)
}

// past returns what deliveries carry of an input and of outputs by stage. Without bytes the input
// is left out, and an output is null.
func past(input json.RawMessage, outputs map[string]json.RawMessage) []asyncflow.PastDocument {
	var all []asyncflow.PastDocument
	if len(input) > 0 {
		all = append(all, asyncflow.PastDocument{Bytes: len(input), JSON: input})
	}
	for _, stage := range slices.Sorted(maps.Keys(outputs)) {
		all = append(all, asyncflow.PastDocument{Stage: stage, Bytes: len(outputs[stage]),
			JSON: outputs[stage]})
	}
	return all
}

// checkFields checks the documents of the fields.
func (c Config) checkFields() error {
	for stage, output := range c.Outputs {
		if err := asyncflow.CheckName(stage); err != nil {
			return asyncflow.InvalidField("outputs", "has %q: %v", stage, err)
		}
		if err := checkField("outputs."+stage, output); err != nil {
			return err
		}
	}
	if err := checkField("input", c.Input); err != nil {
		return err
	}
	return checkField("checkpoint", c.Checkpoint)
}

func checkField(name string, doc json.RawMessage) error {
	if len(doc) == 0 {
		return nil
	}
	if err := asyncflow.CheckJSON(doc); err != nil {
		return asyncflow.InvalidField(name, "%v", err)
	}
	return asyncflow.CheckDocument(name, doc, asyncflow.DefaultMaxContext)
}
