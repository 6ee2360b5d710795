package trees

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Family is where a list finds the children of a task: their ids come in runs. nil: the list is of
// any tasks.
type Family []records.ChildRun

// FamilyOf returns the ids of the tasks of a type that are children of a task, of all its fan-outs,
// or that it started; all tasks for the zero id. latest leaves only children of its latest fan-out.
func FamilyOf(
	ctx context.Context, s *Trees, t *config.Type, parent asyncflow.TaskID, latest bool,
) (Family, error) {
	if parent == (asyncflow.TaskID{}) {
		return nil, nil
	}
	by, err := s.core.Catalog.Fresh(ctx, t.Tenant, parent.Type)
	if asyncflow.CodeOf(err) == asyncflow.CodeNotFound {
		return nil, asyncflow.InvalidField("parent", "is of a type that doesn't exist")
	}
	if err != nil {
		return nil, err
	}
	f := Family{}
	if !latest {
		if f, err = s.startedBy(ctx, t, parent); err != nil {
			return nil, err
		}
	}
	all, err := s.fanOutsOf(ctx, by, parent.Number)
	if n := len(all); latest && n > 1 {
		all = all[n-1:]
	}
	for _, o := range all {
		for _, r := range o.Runs(0, o.Spawned) {
			if r.Type == t.Number() || r.Type == 0 && parent.Type == t.Name {
				f = append(f, r)
			}
		}
	}
	slices.SortFunc(f, func(a, b records.ChildRun) int { return cmp.Compare(a.First, b.First) })
	return f, err
}

// fanOutsOf returns all fan-outs of a task, the latest one last.
func (s *Trees) fanOutsOf(
	ctx context.Context, t *config.Type, id int64,
) (all []*records.FanOut, err error) {
	rows, _ := s.core.DB(t.Tenant).Query(ctx,
		t.SQL(0, records.FanOutColumns+`WHERE type = $1 AND id = $2 ORDER BY seq`), t.Number(), id)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*records.FanOut, error) {
		o := &records.FanOut{}
		return o, row.Scan(o.Columns()...)
	})
}

// JoinedBy counts the tasks that a task started and waited for, by the numbers of their types.
func JoinedBy(
	ctx context.Context, s *Trees, t *config.Type, id int64,
) (counts map[int32]int, err error) {
	all, err := s.fanOutsOf(ctx, t, id)
	counts = map[int32]int{}
	for _, o := range all {
		for _, r := range o.Runs(0, o.Spawned) {
			if r.Type != 0 {
				counts[r.Type] += r.N
			}
		}
	}
	return counts, err
}

// Before returns the number before which the next window of a list ends, at most the given one, and
// the least number in it. Without any more it returns 0.
func (f Family) Before(number int64) (before, least int64) {
	if f == nil {
		return number, 0
	}
	n, _ := slices.BinarySearchFunc(f, number, func(r records.ChildRun, number int64) int {
		return cmp.Compare(r.First, number)
	})
	if n == 0 {
		return 0, 0
	}
	return min(number, f[n-1].Last()+1), f[n-1].First
}

// From returns the number from which on the next window of a reverse list goes, at least the given
// one, and the number before which it ends. Without any more, both are the greatest of all.
func (f Family) From(number int64) (least, before int64) {
	if f == nil {
		return number, math.MaxInt64
	}
	n, _ := slices.BinarySearchFunc(f, number, func(r records.ChildRun, number int64) int {
		return cmp.Compare(r.Last(), number)
	})
	if n == len(f) {
		return math.MaxInt64, math.MaxInt64
	}
	return max(number, f[n].First), f[n].Last() + 1
}

// ChildTypes returns the types of children that an attempt started; nil: they have that of their
// parent.
func ChildTypes(
	ctx context.Context, s *Trees, t *config.Type, o *records.FanOut,
) ([]string, error) {
	if o.Types == nil {
		return nil, nil
	}
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, `SELECT name FROM {types}
		WHERE number = ANY ($1) ORDER BY name`), o.Types)
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// childCounts counts the children of a fan-out that ended, or that are still to be made.
func childCounts(o *records.FanOut) *asyncflow.Children {
	c := &asyncflow.Children{Total: o.Count, Waiting: o.Count - o.Spawned,
		Succeeded: o.Ended.Succeeded, Failed: o.Ended.Failed, Cancelled: o.Ended.Cancelled}
	switch {
	case o.Rule.Quorum != nil: // further votes are made as needed
		c.Total = o.Spawned
		c.Waiting = 0
	case o.Stopped:
		c.Cancelled += c.Waiting
		c.Waiting = 0
	}
	return c
}

// ChildrenOf counts the children of a fan-out by how they stand.
func ChildrenOf(
	ctx context.Context, s *Trees, t *config.Type, o *records.FanOut,
) (*asyncflow.Children, error) {
	c := childCounts(o)
	if o.Closed {
		return c, nil
	}
	var waiting int
	for _, r := range o.Runs(0, o.Spawned) {
		var leased, waits int
		number := t.Number()
		if r.Type != 0 {
			number = r.Type
		}
		err := s.core.DB(t.Tenant).QueryRow(ctx, t.SQL(0, `
			SELECT (SELECT count(*) FROM {lease} WHERE type = $1 AND id BETWEEN $2 AND $3),
			  (SELECT count(*) FROM {wait} WHERE type = $1 AND id BETWEEN $2 AND $3)`), number,
			r.First, r.Last()).Scan(&leased, &waits)
		if err != nil {
			return nil, err
		}
		c.Running += leased
		waiting += waits
	}
	c.Pending = max(0, o.Spawned-o.Ended.Sum()-c.Running-waiting)
	c.Waiting += waiting
	return c, nil
}

// levelFanOuts is how many fan-outs are read to count the tasks of a tree. A tree may have as many
// as it has tasks.
const levelFanOuts = 2000

// levelSQL reads the latest fan-out of each of some children.
const levelSQL = `
SELECT l.* FROM unnest($1::int[], $2::bigint[], $3::bigint[]) AS u (number, first, last),
LATERAL (SELECT DISTINCT ON (f.id) f.* FROM {fan_outs} f
  WHERE f.type = u.number AND f.id BETWEEN u.first AND u.last
  ORDER BY f.id, f.seq DESC) l LIMIT $4`

// TreeOf counts the tasks of all levels below a task with a fan-out; nil: there is one level only.
func TreeOf(
	ctx context.Context, s *Trees, t *config.Type, o *records.FanOut,
) (*asyncflow.TreeCounts, error) {
	tree := &asyncflow.TreeCounts{}
	left := levelFanOuts
	for level := []*records.FanOut{o}; len(level) > 0; {
		tree.Levels++
		for _, o := range level {
			addLevel(tree, o)
		}
		var err error
		if level, err = s.levelBelow(ctx, t, level, left+1); err != nil {
			return nil, err
		}
		if len(level) > left {
			tree.AtLeast = true
			level = level[:left]
		}
		left -= len(level)
	}
	if tree.Levels == 1 {
		return nil, nil
	}
	return tree, nil
}

// addLevel adds the children of one fan-out.
func addLevel(tree *asyncflow.TreeCounts, o *records.FanOut) {
	c := childCounts(o)
	tree.Total += c.Total
	tree.Succeeded += c.Succeeded
	tree.Failed += c.Failed
	tree.Cancelled += c.Cancelled
}

// levelBelow returns the latest fan-outs of the children of some fan-outs, up to most.
func (s *Trees) levelBelow(
	ctx context.Context, t *config.Type, level []*records.FanOut, most int,
) ([]*records.FanOut, error) {
	var numbers []int32
	var firsts, lasts []int64
	for _, o := range level {
		for _, r := range o.Runs(0, o.Spawned) {
			number := r.Type
			if number == 0 {
				number = o.Number
			}
			numbers = append(numbers, number)
			firsts = append(firsts, r.First)
			lasts = append(lasts, r.Last())
		}
	}
	rows, _ := s.core.DB(t.Tenant).Query(ctx, t.SQL(0, records.FanOutColumnsOf(levelSQL)), numbers,
		firsts, lasts, most)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (*records.FanOut, error) {
		o := &records.FanOut{}
		return o, row.Scan(o.Columns()...)
	})
}
