package document

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// Apply brings the server to what the document says. It takes nothing away. It calls report after
// each item. The error names each item that the server refused; the items around it are applied.
// After any other failure, it doesn't go on.
func (doc Document) Apply(ctx context.Context, c *client.Client, report func(Change)) error {
	var all []error
	for _, apply := range []func(
		context.Context, *client.Client, func(Change),
	) (refused []error, err error){doc.applyTypes, doc.applyEndpoints, doc.applySchedules} {
		refused, err := apply(ctx, c, report)
		all = append(all, refused...)
		if err != nil {
			return errors.Join(append(all, err)...)
		}
	}
	return errors.Join(all...)
}

// applyAll applies the n items of a list, and goes on after one that the server refuses.
func (doc Document) applyAll(
	list string, n int, report func(Change), apply func(i int) (Change, error),
) (refused []error, _ error) {
	for i := range n {
		done, err := apply(i)
		if err == nil {
			report(done)
			continue
		}
		at := fileLine(doc.file, doc.refusedLine(fmt.Sprintf("%s[%d]", list, i), err))
		err = fmt.Errorf("%s%s %s: %w", at, done.Kind, done.Name, err)
		if !isRefusal(err) {
			return refused, err
		}
		refused = append(refused, err)
	}
	return refused, nil
}

// refusedLine returns the line of the first field that the server refused, or of the item.
func (doc Document) refusedLine(path string, err error) int {
	var answer *client.Error
	if errors.As(err, &answer) && len(answer.Problem.Errors) > 0 {
		path += "." + answer.Problem.Errors[0].Field
	}
	return doc.lines.line(path)
}

// isRefusal reports whether an error concerns only the item that was sent.
func isRefusal(err error) bool {
	var answer *client.Error
	return errors.As(err, &answer) &&
		slices.Contains([]int{400, 404, 409, 412, 413, 422}, answer.Status)
}

func (doc Document) applyTypes(
	ctx context.Context, c *client.Client, report func(Change),
) (refused []error, _ error) {
	return doc.applyAll("types", len(doc.Types), report, func(i int) (Change, error) {
		t := doc.Types[i]
		did, err := replace(ctx, func(ctx context.Context) (int, error) {
			old, err := c.TaskType(ctx, t.Name)
			return old.Version, err
		}, func(ctx context.Context) (int, error) {
			after, err := c.PutTaskType(ctx, t.Name, t.TaskTypeSpec)
			return after.Version, err
		})
		return Change{Kind: "type", Name: t.Name, Did: did}, err
	})
}

// replace reads the version of an item and puts it, and returns what that did. If somebody else
// changed the item in between, it changes nothing: CodePrecondition. If somebody else created it,
// it begins again.
func replace(
	ctx context.Context, get, put func(context.Context) (version int, err error),
) (did string, err error) {
	for range 2 {
		var etag string
		before, err := get(client.ReadETag(ctx, &etag))
		if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
			_, err = put(client.IfNew(ctx))
			if asyncflow.CodeOf(err) == asyncflow.CodePrecondition {
				continue
			}
			return "created", err
		}
		if err != nil {
			return "", err
		}
		if etag != "" { // there are none on older servers
			ctx = client.IfMatch(ctx, etag)
		}
		after, err := put(ctx)
		if err == nil && before == after {
			return "unchanged", nil
		}
		return "changed", err
	}
	return "", asyncflow.Errorf(asyncflow.CodeConflict,
		"others create and delete it at the same time: nothing was changed")
}

func (doc Document) applyEndpoints(
	ctx context.Context, c *client.Client, report func(Change),
) (refused []error, _ error) {
	if len(doc.Endpoints) == 0 {
		return nil, nil
	}
	existing, err := c.Endpoints(ctx, "")
	if err != nil {
		return nil, err
	}
	return doc.applyAll("endpoints", len(doc.Endpoints), report, func(i int) (Change, error) {
		return applyEndpoint(ctx, c, doc.Endpoints[i], existing)
	})
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
	refused, err := doc.applySchedules(ctx, c, report)
	return errors.Join(append(refused, err)...)
}

func (doc Document) applySchedules(
	ctx context.Context, c *client.Client, report func(Change),
) (refused []error, _ error) {
	return doc.applyAll("schedules", len(doc.Schedules), report, func(i int) (Change, error) {
		s := doc.Schedules[i]
		did, err := replace(ctx, func(ctx context.Context) (int, error) {
			old, err := c.Schedule(ctx, s.Name)
			return old.Version, err
		}, func(ctx context.Context) (int, error) {
			after, err := c.PutSchedule(ctx, s.Name, s.ScheduleSpec)
			return after.Version, err
		})
		return Change{Kind: "schedule", Name: s.Name, Did: did}, err
	})
}

// indexEndpoint returns the index of a document's endpoint among the server's endpoints, or -1.
func indexEndpoint(existing []client.Endpoint, e client.NewEndpoint) int {
	return slices.IndexFunc(existing, func(o client.Endpoint) bool {
		return o.Type == e.Type && o.Stage == e.Stage && asyncflow.SameURL(o.URL, e.URL)
	})
}
