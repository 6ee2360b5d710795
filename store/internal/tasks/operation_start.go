package tasks

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// CountTasks returns how many tasks an operation would concern if it began now.
func (s *operations) CountTasks(ctx context.Context, tenant string, n NewOperation) (int64, error) {
	o, err := s.prepareOperation(ctx, tenant, n)
	return o.Total, postgres.Wrap(err, "CountTasks(%q, %q)", tenant, n.Filter.Type)
}

// StartOperation begins an operation; a background job takes its steps. An operation that
// concerns no task is done at once.
func (s *operations) StartOperation(
	ctx context.Context, tenant string, n NewOperation,
) (Operation, error) {
	if uses := n.Filter.uses(); uses != nil {
		if err := s.core.CheckKnown(ctx, uses); err != nil {
			return Operation{}, postgres.Wrap(err, "StartOperation(%q)", tenant)
		}
	}
	o, err := s.prepareOperation(ctx, tenant, n)
	if err != nil {
		return Operation{}, postgres.Wrap(err, "StartOperation(%q, %q)", tenant, n.Filter.Type)
	}
	err = s.insertOperation(ctx, tenant, o)
	if postgres.State(err) == pgerrcode.ForeignKeyViolation {
		err = config.UnknownType(n.Filter.Type)
	}
	if err != nil {
		return Operation{}, postgres.Wrap(err, "StartOperation(%q, %q)", tenant, n.Filter.Type)
	}
	return o, nil
}

// countWindow is how many tasks one counting statement, or a step of a count, looks at.
const countWindow = 20_000

// window returns how many tasks a counting statement looks at.
func (f Filter) window() int {
	if f.Fingerprint != "" {
		return errorWindow
	}
	return countWindow
}

// uses returns what the filter uses that a node of an earlier version would leave out: it would
// visit more tasks than are asked for.
func (f Filter) uses() (all []asyncflow.Capability) {
	if f.Worker != "" {
		all = append(all, asyncflow.CapWorkers)
	}
	if f.Fingerprint != "" {
		all = append(all, asyncflow.CapFingerprints)
	}
	return all
}

// prepareOperation returns the operation as it begins: with its total, and with a position
// before the first task that it may concern.
func (s *operations) prepareOperation(
	ctx context.Context, tenant string, n NewOperation,
) (Operation, error) {
	types, err := s.operationTypes(ctx, tenant, n)
	if err == nil && n.Kind == EraseTasks {
		err = s.core.CheckKnown(ctx, erasureNeeds)
	}
	if err != nil {
		return Operation{}, err
	}
	for _, t := range types {
		if err := n.check(t); err != nil {
			return Operation{}, err
		}
	}
	if err := s.checkParent(ctx, tenant, n.Filter.Parent); err != nil {
		return Operation{}, err
	}
	now := s.core.Clock.Now()
	o := Operation{ID: uuid.Must(uuid.NewV7()).String(), NewOperation: n, State: OperationRunning,
		CreatedAt: now, nextAt: now}
	o.Filter.Type = types[0].Name
	if o.Kind == CountAll {
		for _, t := range types {
			n, err := s.candidatesOf(ctx, t, o.criteria())
			if err != nil {
				return o, err
			}
			o.Total += n
		}
		return o, nil
	}
	err = s.countTypes(ctx, types, &o)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return o, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
			Message: "there are too many tasks to look through in the time of one call: " +
				"narrow the filter, by status above all"}
	case err == nil && o.Total == 0:
		o.State = OperationDone
		o.FinishedAt = now
	}
	return o, err
}

// operationTypes returns the type of an operation, or all types of its tenant by their names.
func (s *operations) operationTypes(
	ctx context.Context, tenant string, n NewOperation,
) ([]*config.Type, error) {
	if !n.AllTypes {
		t, err := s.core.Catalog.Fresh(ctx, tenant, n.Filter.Type)
		return []*config.Type{t}, err
	}
	if n.FromStage != "" {
		return nil, asyncflow.InvalidField("from_stage", "needs a type: types have other stages")
	}
	types, err := s.typesFor(ctx, tenant, Filter{})
	if err == nil && len(types) == 0 {
		err = asyncflow.Errorf(asyncflow.CodeNotFound, "the tenant has no task types")
	}
	return types, err
}

// countTypes counts the tasks of types that an operation concerns. The operation begins at the
// first type with such tasks.
func (s *operations) countTypes(ctx context.Context, types []*config.Type, o *Operation) error {
	for _, t := range types {
		one := *o
		one.Total = 0
		if err := s.countOperation(ctx, t, &one); err != nil {
			return err
		}
		if o.Total == 0 && one.Total > 0 || len(types) == 1 {
			o.Filter.Type = t.Name
			o.position = one.position
		}
		o.Total += one.Total
	}
	return nil
}

// countOperation counts the tasks that an operation concerns, in many short statements.
func (s *operations) countOperation(ctx context.Context, t *config.Type, o *Operation) error {
	ctx = postgres.Patient(ctx)
	t, first, err := s.firstLive(ctx, t)
	if err != nil {
		return err
	}
	var f findings
	switch o.Kind {
	case RedriveTasks, RerunTasks, EraseTasks:
	default: // no number of a live task is lesser
		o.position = max(first-1, 0)
		f.last = o.position
		f.over = first == 0
	}
	for !f.over && err == nil {
		err = s.searching(ctx, t.Tenant, func(tx pgx.Tx) error {
			f, err = search(ctx, tx, t, o.criteria(), f.last, o.Filter.window())
			return err
		})
		o.Total += int64(len(f.ids))
	}
	return err
}

// candidatesOf returns about how many tasks a search by criteria looks at. The final tasks
// count from the creation of their type, and may be gone.
func (s *operations) candidatesOf(
	ctx context.Context, t *config.Type, c criteria,
) (n int64, err error) {
	if err := c.learn(ctx, s.core.DB(t.Tenant), t); err != nil {
		return 0, err
	}
	all, err := s.counts.Stats(ctx, t.Tenant, t.Name)
	if err != nil {
		return 0, err
	}
	for _, status := range c.lookedAt() {
		n += all[0].ByStatus(status)
	}
	return n, nil
}

// firstLive returns the least number of a live task, 0 if none is live. It returns the type with
// its tables of that moment: another node may have opened a roll this second that gets the new
// tasks.
func (s *operations) firstLive(
	ctx context.Context, t *config.Type,
) (_ *config.Type, first int64, err error) {
	location, err := config.ReadLocation(ctx, s.core.DB(t.Tenant), t.Tenant, t.Name)
	if err != nil {
		return nil, 0, err
	}
	for {
		t = config.Located(t, location)
		first, err = s.leastToken(ctx, t)
		if err != nil {
			return nil, 0, err
		}
		location, err = config.ReadLocation(ctx, s.core.DB(t.Tenant), t.Tenant, t.Name)
		if err != nil {
			return nil, 0, err
		}
		if config.SameAs(t, location) {
			return t, first, nil
		}
	}
}

// leastToken returns the least number in the tables with the token rows of live tasks, by one
// statement; 0 if they are empty.
func (s *operations) leastToken(ctx context.Context, t *config.Type) (least int64, err error) {
	var selects []string
	for _, table := range config.TokenTables(t) {
		selects = append(selects, `(SELECT min(id) FROM `+table+` WHERE type = $1)`)
	}
	err = s.core.DB(t.Tenant).QueryRow(ctx,
		`SELECT coalesce(least(`+strings.Join(selects, ", ")+`), 0)`, t.Number()).Scan(&least)
	return least, err
}
