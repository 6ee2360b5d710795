package main

import (
	"context"
	"fmt"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// change is what applying a document did with one of its items.
type change struct {
	Kind   string `json:"kind"`             // "type", "endpoint" or "schedule"
	Name   string `json:"name"`             // of the type or schedule; type, stage and URL of the endpoint
	Did    string `json:"did"`              // "created", "changed" or "unchanged"
	ID     string `json:"id,omitempty"`     // of the endpoint
	Secret string `json:"secret,omitempty"` // of the endpoint, when the server made it just now
	// Unverified says why the endpoint, which was made just now, gets no deliveries yet.
	Unverified string `json:"unverified,omitempty"`
}

// String returns the change in one line.
func (c change) String() string {
	line := fmt.Sprintf("%-9s  %s %s", c.Did, c.Kind, c.Name)
	if c.Secret != "" {
		line += "  secret " + c.Secret + " (shown this once)"
	}
	if c.Unverified != "" {
		line += "  gets no deliveries until asyncflow endpoints verify " + c.ID + ": " + c.Unverified
	}
	return line
}

// applyDocument applies a document and says what it did, in a line an item. An
// error names the item; those before it are applied.
func applyDocument(ctx context.Context, c *client.Client, doc document, say func(line string)) error {
	return doc.apply(ctx, c, func(done change) { say(done.String()) })
}

// apply makes the server have what a document has. It takes nothing away.
// report is called after each item.
func (doc document) apply(ctx context.Context, c *client.Client, report func(change)) error {
	if err := doc.applyTypes(ctx, c, report); err != nil {
		return err
	}
	if err := doc.applyEndpoints(ctx, c, report); err != nil {
		return err
	}
	return doc.applySchedules(ctx, c, report)
}

func (doc document) applyTypes(ctx context.Context, c *client.Client, report func(change)) error {
	if len(doc.Types) == 0 {
		return nil
	}
	before, err := c.TaskTypes(ctx)
	if err != nil {
		return err
	}
	versions := map[string]int{}
	for _, t := range before {
		versions[t.Name] = t.Version
	}
	for _, t := range doc.Types {
		after, err := c.PutTaskType(ctx, t.Name, t.TaskTypeSpec)
		if err != nil {
			return fmt.Errorf("type %s: %w", t.Name, err)
		}
		report(change{Kind: "type", Name: t.Name, Did: whatChanged(versions, after.Name, after.Version)})
	}
	return nil
}

// whatChanged tells what was done with an item, by the versions of all before and by
// its own after.
func whatChanged(before map[string]int, name string, after int) string {
	switch version, existed := before[name]; {
	case !existed:
		return "created"
	case version != after:
		return "changed"
	}
	return "unchanged"
}

func (doc document) applyEndpoints(ctx context.Context, c *client.Client, report func(change)) error {
	if len(doc.Endpoints) == 0 {
		return nil
	}
	existing, err := c.Endpoints(ctx, "")
	if err != nil {
		return err
	}
	for _, e := range doc.Endpoints {
		done := change{Kind: "endpoint", Name: e.Type + " " + e.Stage + " " + e.URL, Did: "unchanged"}
		if at := existingEndpoint(existing, e); at >= 0 {
			done.ID = existing[at].ID
			report(done)
			continue
		}
		created, err := c.CreateEndpoint(ctx, e)
		if asyncflow.CodeOf(err) == asyncflow.CodeConflict { // another apply may have been faster
			if existing, err = c.Endpoints(ctx, ""); err == nil && existingEndpoint(existing, e) >= 0 {
				done.ID = existing[existingEndpoint(existing, e)].ID
				report(done)
				continue
			}
		}
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", done.Name, err)
		}
		done.Did, done.ID = "created", created.ID
		if created.Verification == "unverified" {
			done.Unverified = created.VerificationError
		}
		if e.Secret == "" {
			done.Secret = created.Secret
		}
		report(done)
	}
	return nil
}
