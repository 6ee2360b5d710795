package trees

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

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
