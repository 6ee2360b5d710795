package store

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// family is where a list finds the children of a task: their ids come in runs. nil: the list is of
// any tasks.
type family []run

// familyOf returns the ids of the children of a task, of all its fan-outs; all tasks for the zero
// id.
func (s *trees) familyOf(ctx context.Context, t *Type, parent asyncflow.TaskID) (family, error) {
	if parent == (asyncflow.TaskID{}) {
		return nil, nil
	}
	if parent.Type != t.Name {
		return nil, asyncflow.InvalidField("parent", "is of another type than %s", t.Name)
	}
	all, err := s.fanOutsOf(ctx, t, parent.Number)
	f := family{}
	for _, o := range all {
		f = append(f, o.runs(0, o.spawned)...)
	}
	slices.SortFunc(f, func(a, b run) int { return cmp.Compare(a.first, b.first) })
	return f, err
}

// fanOutsOf returns all fan-outs of a task.
func (s *trees) fanOutsOf(ctx context.Context, t *Type, id int64) (all []*fanOut, err error) {
	rows, err := s.of(t.Tenant).Query(ctx,
		t.at(0, fanOutColumns+`WHERE type = $1 AND id = $2`), t.number, id)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*fanOut, error) {
		o := &fanOut{}
		return o, row.Scan(o.columns()...)
	})
}

// before returns the number before which the next window of a list ends, at most the given one, and
// the least number in it. Without any more it returns 0.
func (f family) before(number int64) (before, least int64) {
	if f == nil {
		return number, 0
	}
	for _, r := range slices.Backward(f) {
		if r.first < number {
			return min(number, r.last()+1), r.first
		}
	}
	return 0, 0
}

func (s *trees) childrenOf(
	ctx context.Context, t *Type, o *fanOut,
) (*asyncflow.Children, error) {
	c := &asyncflow.Children{Total: o.count, Waiting: o.count - o.spawned,
		Succeeded: o.ended.succeeded, Failed: o.ended.failed, Cancelled: o.ended.cancelled}
	switch {
	case o.rule.Quorum != nil: // further votes are made as needed
		c.Total, c.Waiting = o.spawned, 0
	case o.stopped:
		c.Waiting, c.Cancelled = 0, c.Cancelled+c.Waiting
	}
	if o.closed {
		return c, nil
	}
	var waiting int
	for _, r := range o.runs(0, o.spawned) {
		var leased, waits int
		err := s.of(t.Tenant).QueryRow(ctx, t.at(0, `
			SELECT (SELECT count(*) FROM {lease} WHERE type = $1 AND id BETWEEN $2 AND $3),
			  (SELECT count(*) FROM {wait} WHERE type = $1 AND id BETWEEN $2 AND $3)`), t.number, r.first,
			r.last()).Scan(&leased, &waits)
		if err != nil {
			return nil, err
		}
		c.Running, waiting = c.Running+leased, waiting+waits
	}
	c.Pending = max(0, o.spawned-o.ended.sum()-c.Running-waiting)
	c.Waiting += waiting
	return c, nil
}
