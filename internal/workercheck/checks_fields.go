package workercheck

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
)

// fieldsOfStages sends a second attempt with the fields of only some deliveries: what the stage
// asks for by deliver, what the first attempt left, and links.
func fieldsOfStages(ctx context.Context, r *rehearsal) finding {
	d := r.delivery()
	d.Lease.Seq, d.Lease.Attempt = 2, 2
	d.Lease.Checkpoint = r.cfg.Checkpoint
	if len(d.Lease.Past) == 0 {
		d.Lease.Past = past(r.cfg.Context, map[string]json.RawMessage{r.cfg.Stage: nil})
	}
	if d.Links == nil {
		d.Links = waitLinks(map[string][]string{"review": {"approve", "reject"}})
	}
	return allDone(r.send(ctx, d)...)
}

// waitLinks returns the links that deliveries carry, of decisions by stage.
func waitLinks(links map[string][]string) (all []asyncflow.WaitLinks) {
	for _, stage := range slices.Sorted(maps.Keys(links)) {
		all = append(all, asyncflow.WaitLinks{Stage: stage, Decisions: links[stage],
			Timeout: time.Hour})
	}
	return all
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
	for stage, decisions := range c.Links {
		for _, name := range append([]string{stage}, decisions...) {
			if err := asyncflow.CheckName(name); err != nil {
				return asyncflow.InvalidField("links", "has %q: %v", name, err)
			}
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
