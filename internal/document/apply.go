package document

import (
	"context"
	"fmt"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Apply makes the server have what the document has. It takes nothing away. It calls report
// after each item; an error names the item, and those before it are applied.
func (doc Document) Apply(ctx context.Context, c *client.Client, report func(Change)) error {
	if err := doc.applyTypes(ctx, c, report); err != nil {
		return err
	}
	if err := doc.applyEndpoints(ctx, c, report); err != nil {
		return err
	}
	return doc.ApplySchedules(ctx, c, report)
}

func (doc Document) applyTypes(ctx context.Context, c *client.Client, report func(Change)) error {
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
		did := didWhat(versions, after.Name, after.Version)
		report(Change{Kind: "type", Name: t.Name, Did: did})
	}
	return nil
}

// didWhat returns what applying did with an item, by the versions of all before and its
// own after.
func didWhat(before map[string]int, name string, after int) string {
	switch version, existed := before[name]; {
	case !existed:
		return "created"
	case version != after:
		return "changed"
	}
	return "unchanged"
}

func (doc Document) applyEndpoints(
	ctx context.Context, c *client.Client, report func(Change),
) error {
	if len(doc.Endpoints) == 0 {
		return nil
	}
	existing, err := c.Endpoints(ctx, "")
	if err != nil {
		return err
	}
	for _, e := range doc.Endpoints {
		done, err := applyEndpoint(ctx, c, e, existing)
		if err != nil {
			return fmt.Errorf("endpoint %s: %w", endpointName(e), err)
		}
		report(done)
	}
	return nil
}

// applyEndpoint creates an endpoint, unless it is one of the existing ones, or another
// caller creates it at the same time.
func applyEndpoint(
	ctx context.Context, c *client.Client, e client.NewEndpoint, existing []client.Endpoint,
) (Change, error) {
	done := Change{Kind: "endpoint", Name: endpointName(e), Did: "unchanged"}
	if at := indexEndpoint(existing, e); at >= 0 {
		done.ID = existing[at].ID
		return done, nil
	}
	created, err := c.CreateEndpoint(ctx, e)
	if asyncflow.CodeOf(err) == asyncflow.CodeConflict {
		newer, listErr := c.Endpoints(ctx, "")
		if at := indexEndpoint(newer, e); listErr == nil && at >= 0 {
			done.ID = newer[at].ID
			return done, nil
		}
	}
	if err != nil {
		return done, err
	}
	done.Did, done.ID = "created", created.ID
	if created.Verification == "unverified" {
		done.Unverified = created.VerificationError
	}
	if e.Secret == "" {
		done.Secret = created.Secret
	}
	return done, nil
}

func endpointName(e client.NewEndpoint) string { return e.Type + " " + e.Stage + " " + e.URL }

// ApplySchedules is Apply for the schedules alone.
func (doc Document) ApplySchedules(
	ctx context.Context, c *client.Client, report func(Change),
) error {
	if len(doc.Schedules) == 0 {
		return nil
	}
	before, err := c.Schedules(ctx)
	if err != nil {
		return err
	}
	versions := map[string]int{}
	for _, s := range before {
		versions[s.Name] = s.Version
	}
	for _, entry := range doc.Schedules {
		after, err := c.PutSchedule(ctx, entry.Name, entry.ScheduleSpec)
		if err != nil {
			return fmt.Errorf("schedule %s: %w", entry.Name, err)
		}
		did := didWhat(versions, after.Name, after.Version)
		report(Change{Kind: "schedule", Name: entry.Name, Did: did})
	}
	return nil
}

// indexEndpoint returns the index of a document's endpoint among those of the server, or -1.
func indexEndpoint(existing []client.Endpoint, e client.NewEndpoint) int {
	return slices.IndexFunc(existing, func(o client.Endpoint) bool {
		return o.Type == e.Type && o.Stage == e.Stage && asyncflow.SameURL(o.URL, e.URL)
	})
}
