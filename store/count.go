package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// counted are the counts of a type, and the task that is due first.
type counted struct {
	Stats
	t    *Type
	head *head // nil when none is due
}

// head is the token row of a task that is due.
type head struct {
	order time.Time
	id    int64
	seq   int
}

// countSQL counts one of the types in the array $1. Its verbs are the place in there
// (1 is the first), the counts of its ready tables, and their heads. What was redriven
// in the last minute doesn't lower the rate of what became final.
const countSQL = `
SELECT %[1]d, (SELECT count(*) FROM {wait}), %[2]s, (SELECT count(*) FROM {lease}), c.*, h.*
FROM (
  SELECT coalesce(sum(succeeded), 0)::bigint, coalesce(sum(failed), 0)::bigint, coalesce(sum(cancelled), 0)::bigint,
    coalesce(sum(submitted) FILTER (WHERE at > $2), 0)::float8,
    coalesce(sum(attempts) FILTER (WHERE at > $2), 0)::float8,
    coalesce(sum(failures) FILTER (WHERE at > $2), 0)::float8,
    coalesce(sum(succeeded + greatest(failed, 0) + greatest(cancelled, 0)) FILTER (WHERE at > $2), 0)::float8
  FROM {tallies} WHERE type = ($1::text[])[%[1]d]) c
LEFT JOIN (SELECT * FROM (%[3]s) r ORDER BY order_time, id LIMIT 1) h ON true`

// countStatement returns the statement that counts a type at a place in a list.
func (t *Type) countStatement(place int) string {
	var counts, heads []string
	for p := t.Begin; p <= t.End; p++ {
		counts = append(counts, `(SELECT count(*) FROM `+t.tables.ready(p)+`)`)
		heads = append(heads, `(SELECT order_time, id, seq FROM `+t.tables.ready(p)+` WHERE order_time <= $3 ORDER BY order_time, id LIMIT 1)`)
	}
	return fmt.Sprintf(t.tables.at(0, countSQL), place, strings.Join(counts, " + "), strings.Join(heads, " UNION ALL "))
}

// countTypes counts some types in one statement, and so at one moment.
func (s *Store) countTypes(ctx context.Context, tenant string, types map[string]*Type, names []string) ([]counted, error) {
	selects := make([]string, len(names))
	for i, name := range names {
		selects[i] = types[name].countStatement(i + 1)
	}
	now := s.Clock.Now()
	rows, err := s.of(tenant).Query(ctx, strings.Join(selects, " UNION ALL ")+" ORDER BY 1", pgx.QueryExecModeExec, names, now.Add(-rateWindow), now)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c counted, err error) {
		var place int
		var order *time.Time
		var id *int64
		var seq *int
		r := &c.Rates
		err = row.Scan(&place, &c.Waiting, &c.Pending, &c.Running, &c.Succeeded, &c.Failed, &c.Cancelled,
			&r.Submitted, &r.Attempts, &r.Failures, &r.Finished, &order, &id, &seq)
		if err != nil {
			return c, err
		}
		for _, rate := range []*float64{&r.Submitted, &r.Attempts, &r.Failures, &r.Finished} {
			*rate /= rateWindow.Seconds()
		}
		c.t = types[names[place-1]]
		c.Type, c.Paused, c.Rolls = c.t.Name, c.t.Paused(), c.t.End-c.t.First+1
		if id != nil {
			c.head = &head{*order, *id, *seq}
		}
		return c, nil
	})
}

// sinceSQL tells since when a task has stood where it stands in ready. Its verbs are
// the place in a list, and the task's number and seq.
const sinceSQL = `
SELECT %d, coalesce(
  (SELECT at FROM {journal} WHERE id = %[2]d AND seq < %[3]d ORDER BY seq DESC LIMIT 1),
  (SELECT created_at FROM {task} WHERE id = %[2]d))`

// readOldestDue fills in OldestDue, in one statement for all types that have a task
// that is due.
func (s *Store) readOldestDue(ctx context.Context, tenant string, all []counted) error {
	var selects []string
	for i := range all {
		c := &all[i]
		if c.head == nil {
			continue
		}
		c.OldestDue = c.head.order
		position := asyncflow.TaskID{Number: c.head.id}.Position()
		selects = append(selects, fmt.Sprintf(c.t.tables.at(position, sinceSQL), i, c.head.id, c.head.seq))
	}
	if len(selects) == 0 {
		return nil
	}
	rows, err := s.of(tenant).Query(ctx, strings.Join(selects, " UNION ALL "), pgx.QueryExecModeExec)
	if err != nil {
		return err
	}
	var i int
	var since *time.Time
	_, err = pgx.ForEachRow(rows, []any{&i, &since}, func() error {
		if since != nil && since.After(all[i].OldestDue) {
			all[i].OldestDue = *since
		}
		return nil
	})
	return err
}
