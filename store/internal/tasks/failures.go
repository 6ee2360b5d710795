package tasks

import (
	"context"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// MaxFailures is how many failed tasks a report of failures reads at most. It looks at
	// failureLook candidates: tasks that failed earlier, or were cancelled, are among them.
	MaxFailures = 10_000
	failureLook = 20_000
	// failureTime is how long it reads; failureWindow is how many candidates a statement has.
	failureTime   = 2 * time.Second
	failureWindow = 500
	// FailureSteps is into how many equal parts a report divides its time.
	FailureSteps = 24
	// MaxFailureGroups is how many groups a report has at most.
	MaxFailureGroups = 100
)

// FailureOrder is the order of the groups of a report.
type FailureOrder string

const (
	FailuresByCount FailureOrder = "count"  // the largest first
	FailuresNewest  FailureOrder = "newest" // the one with the latest failure first
)

// FailureFilter says which failures to report.
type FailureFilter struct {
	Type  string    // "": all types of the tenant
	Since time.Time // tasks that failed at or after this time
	Until time.Time // and before this one
	Order FailureOrder
	Limit int // of groups, at most MaxFailureGroups
}

// FailureReport has the tasks that failed in a time and have not been started again, by the kinds
// of their errors.
type FailureReport struct {
	Failures int            // that were read
	Groups   []FailureGroup // up to the limit
	Count    int            // of all groups
	// Searched is how many candidates were looked at. Left are the types that were not, or not to
	// the end, by their names; none: the report is complete.
	Searched int
	Left     []string
}

// GroupFailures reports the failures of a time: the latest of each type, as far as that is cheap. The
// types take turns, so that none hides the others.
func (s *Tasks) GroupFailures(
	ctx context.Context, tenant string, f FailureFilter,
) (FailureReport, error) {
	r, err := s.readFailures(ctx, tenant, f)
	if err != nil {
		return FailureReport{}, postgres.Wrap(err, "GroupFailures(%q, %q)", tenant, f.Type)
	}
	report := r.report()
	err = s.tellVersions(ctx, tenant, report.Groups, f.Since, report.Left)
	return report, postgres.Wrap(err, "GroupFailures(%q, %q)", tenant, f.Type)
}

// readFailures reads failures until it has enough of them.
func (s *Tasks) readFailures(
	ctx context.Context, tenant string, f FailureFilter,
) (*failureReader, error) {
	if !f.Since.Before(f.Until) {
		return nil, asyncflow.InvalidField("until", "is not after since")
	}
	filter := Filter{Type: f.Type, Status: asyncflow.StatusFailed, EndedSince: f.Since,
		EndedUntil: f.Until}
	types, err := s.typesFor(ctx, tenant, filter)
	if err == nil {
		types, err = s.withCandidates(ctx, types, filter)
	}
	if err != nil {
		return nil, err
	}
	r := &failureReader{tasks: s, filter: f, ends: time.Now().Add(s.failureTime),
		groups: map[string]*FailureGroup{}, idle: map[string]map[int]bool{}}
	for _, t := range types {
		r.lines = append(r.lines, &failureLine{t: t})
	}
	return r, r.readAll(ctx)
}

// readAll lets the types take turns until all are read, or enough of them is.
func (r *failureReader) readAll(ctx context.Context) error {
	for more := true; more; {
		more = false
		for _, l := range r.lines {
			if l.over {
				continue
			}
			if r.full() {
				return nil
			}
			err := r.readLine(ctx, l)
			switch {
			case asyncflow.CodeOf(err) == asyncflow.CodeNotFound && r.filter.Type == "":
				l.over = true // it was just deleted
			case postgres.State(err) == pgerrcode.QueryCanceled && ctx.Err() == nil:
				return nil // it took too long
			case err != nil:
				return err
			}
			more = more || !l.over
		}
	}
	return nil
}
