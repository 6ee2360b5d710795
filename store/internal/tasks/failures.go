package tasks

import (
	"context"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// MaxFailures is how many failed tasks a report of failures reads at most. It looks at
	// failureLook candidates: tasks that failed earlier, or were cancelled, are among them.
	MaxFailures = 10_000
	failureLook = 20_000
	// failureTime is how long it reads; failureWindow is how many candidates are in a statement.
	failureTime   = 2 * time.Second
	failureWindow = 500
	// failureSteps is into how many equal parts a report divides its time.
	failureSteps = 24
	// MaxFailureGroups is the most groups in a report.
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

// FailureReport lists the tasks that failed in a time and were not started again, by the kinds of
// their errors.
type FailureReport struct {
	Failures int            // that were read
	Groups   []FailureGroup // up to the limit
	Count    int            // of all groups
	// Searched is how many candidates were looked at. Left are the types that were not, or not to
	// the end, by their names; none: the report is complete.
	Searched int
	Left     []string
}

// GroupFailures reports the failures of a time: the latest of each type, as far as that is cheap.
// The types take turns, so that none hides the others.
func (s *lists) GroupFailures(
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

// readFailures reads failures until there are enough of them.
func (s *lists) readFailures(
	ctx context.Context, tenant string, f FailureFilter,
) (*failureReader, error) {
	if !f.Since.Before(f.Until) {
		return nil, asyncflow.InvalidField("until", "is not after since")
	}
	filter := Filter{Type: f.Type, Status: asyncflow.StatusFailed, EndedSince: f.Since,
		EndedUntil: f.Until}
	types, err := s.typesFor(ctx, tenant, filter)
	if err != nil {
		return nil, err
	}
	if types, err = s.withCandidates(ctx, types, filter); err != nil {
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
			if r.hasEnough() {
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

// failureReader reads the failures of a report.
type failureReader struct {
	tasks    *lists
	filter   FailureFilter
	ends     time.Time               // by when it must end
	lines    []*failureLine          // by the names of the types
	idle     map[string]map[int]bool // by table sets: rolls where nothing ended in time
	groups   map[string]*FailureGroup
	bytes    int // of the errors of examples
	failures int
	searched int
}

// failureLine is how far the failures of a type are read.
type failureLine struct {
	t    *config.Type
	walk *walk // nil: it hasn't begun
	over bool
}

// hasEnough reports whether a report read enough.
func (r *failureReader) hasEnough() bool {
	return r.failures >= MaxFailures || r.searched >= failureLook || r.left() < time.Millisecond
}

// left returns for how long the report may go on.
func (r *failureReader) left() time.Duration { return time.Until(r.ends) }

// readLine reads the next window of a type.
func (r *failureReader) readLine(ctx context.Context, l *failureLine) error {
	return r.tasks.core.FollowRolls(ctx, l.t, func(t *config.Type) error {
		if l.walk == nil {
			idle, err := r.idleRolls(ctx, t)
			if err != nil {
				return err
			}
			l.walk, err = r.tasks.walkOf(ctx, t, Filter{Type: t.Name}, criteria{idle: idle})
			if err != nil {
				return err
			}
		}
		l.t = t
		l.walk.t = t
		if !l.walk.next() {
			l.over = true
			return nil
		}
		v, err := r.readWindow(ctx, l)
		if err != nil {
			return err
		}
		l.walk.pass(v)
		l.over = !l.walk.next()
		return nil
	})
}

// idleRolls returns the positions of the rolls of a type's tables where nothing ended in time. It
// asks once for each table set.
func (r *failureReader) idleRolls(ctx context.Context, t *config.Type) (map[int]bool, error) {
	if t.Earlier != nil { // it is in two sets
		return idleRolls(ctx, r.tasks.core.DB(t.Tenant), t, r.filter.Since)
	}
	set := t.Set().Name
	if idle, known := r.idle[set]; known {
		return idle, nil
	}
	idle, err := idleRolls(ctx, r.tasks.core.DB(t.Tenant), t, r.filter.Since)
	r.idle[set] = idle
	return idle, err
}

// failuresSQL selects the candidates of a window, each with its last failure if that is of the time
// from $5 until $6, and when the task first failed since $5. The last row of a task that was
// started again is no final one.
func failuresSQL() string {
	c := criteria{statuses: []string{string(asyncflow.StatusFailed)}}
	return `
SELECT c.id, j.at, j.stage, j.outcome, coalesce(j.status, 0), coalesce(j.error, ''),
  CASE WHEN j.at IS NOT NULL THEN (SELECT min(at) FROM {journal}
    WHERE type = $1 AND id = c.id AND final = 'failed' AND at >= $5) END
FROM ` + c.candidates(latest) + ` c LEFT JOIN LATERAL (
  SELECT * FROM (SELECT * FROM {journal} j WHERE j.type = $1 AND j.id = c.id
    ORDER BY seq DESC LIMIT 1) j
  WHERE j.final = 'failed' AND j.at >= $5 AND j.at < $6) j ON true`
}

// failure is a task that failed.
type failure struct {
	id    asyncflow.TaskID
	at    time.Time
	first time.Time // when the task first failed in the time of the report
	stage string
	code  string
	text  string // of its last error
}

// readWindow reads the next window of a walk. The database ends it when the report must end.
func (r *failureReader) readWindow(ctx context.Context, l *failureLine) (v view, err error) {
	var found []failure
	position := asyncflow.TaskID{Number: l.walk.before - 1}.Position()
	err = r.tasks.core.DB(l.t.Tenant).QueryWithin(ctx, r.left(), func(rows pgx.Rows) (err error) {
		found, v, err = collectFailures(rows, l.t.Name)
		return err
	}, l.t.SQL(position, failuresSQL()), l.t.Number(), l.walk.least, l.walk.before, failureWindow,
		r.filter.Since, r.filter.Until)
	if err != nil {
		return v, err
	}
	if v.looked < failureWindow { // there are no more in the range
		v.last = l.walk.least
	}
	r.searched += v.looked
	for _, f := range found {
		r.add(f)
	}
	return v, nil
}

// collectFailures collects the rows of failuresSQL.
func collectFailures(rows pgx.Rows, name string) (found []failure, v view, err error) {
	var id int64
	var at, first *time.Time
	var stage, outcome *string
	var answer int
	var text string
	into := []any{&id, &at, &stage, &outcome, &answer, &text, &first}
	_, err = pgx.ForEachRow(rows, into, func() error {
		v.looked++
		if v.last == 0 || id < v.last {
			v.last = id
		}
		if at == nil {
			return nil
		}
		found = append(found, failure{id: asyncflow.TaskID{Type: name, Number: id}, at: *at,
			first: *first, stage: *stage, text: text,
			code: asyncflow.ErrorCode(asyncflow.OutcomeKind(*outcome), answer, text)})
		return nil
	})
	return found, v, err
}
