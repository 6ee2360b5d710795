package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// counted are the counts of a type.
type counted struct {
	Stats
	t      *Type
	due    int64     // due tasks in ready
	since  time.Time // when the oldest of them became due; zero without any
	inWait []dueInWait
}

// dueInWait are due tasks in wait, by the reason and stage in their rows.
type dueInWait struct {
	Stage  string // "": any
	Reason asyncflow.WaitReason
	Tasks  int64
	Oldest time.Time
}

// countSQL counts one of the types in the array $1. Its verbs are the place in the array, from 1,
// and the type's number. It reads only the due rows of wait, by the index on until.
const countSQL = `
SELECT %[1]d, (SELECT count(*) FROM {wait} WHERE type = %[2]d), r.*,
  (SELECT count(*) FROM {lease} WHERE type = %[2]d), c.*, (
  SELECT json_agg(h) FROM (
    SELECT CASE WHEN reason <> 'flow_key' THEN stage END AS stage, reason, count(*) AS tasks,
      min(coalesce(since, order_time)) AS oldest
    FROM {wait} WHERE type = %[2]d AND until = 'infinity' AND order_time <= $3 GROUP BY 1, 2
    UNION ALL
    SELECT NULL, reason, count(*), min(order_time) FROM {wait}
    WHERE type = %[2]d AND until <= $3 GROUP BY 2
    UNION ALL
    SELECT NULL, reason, count(*), min(coalesce(since, order_time)) FROM {wait}
    WHERE type = %[2]d AND until = $4 AND order_time <= $3 GROUP BY 2) h)
FROM (
  SELECT coalesce(sum(succeeded), 0)::bigint, coalesce(sum(failed), 0)::bigint,
    coalesce(sum(cancelled), 0)::bigint, coalesce(sum(submitted), 0)::float8,
    coalesce(sum(attempts), 0)::float8, coalesce(sum(failures), 0)::float8,
    coalesce(sum(finished), 0)::float8
  FROM sums WHERE type = ($1::text[])[%[1]d]) c,
(SELECT count(*), count(*) FILTER (WHERE order_time <= $3),
    min(coalesce(since, order_time)) FILTER (WHERE order_time <= $3)
  FROM {readies} r WHERE type = %[2]d) r`

// sumsSQL adds up the tallies of the types in the array $1; for the rates, those since $2. Redrives
// of the last minute don't lower the rate of tasks that became final. It reads the tallies of all
// types once: they have no index, since it would cost each task more.
const sumsSQL = `
WITH sums AS MATERIALIZED (
  SELECT type, sum(succeeded) AS succeeded, sum(failed) AS failed, sum(cancelled) AS cancelled,
    sum(submitted) FILTER (WHERE at > $2) AS submitted,
    sum(attempts) FILTER (WHERE at > $2) AS attempts,
    sum(failures) FILTER (WHERE at > $2) AS failures,
    sum(succeeded + greatest(failed, 0) + greatest(cancelled, 0)) FILTER (WHERE at > $2) AS finished
  FROM {tallies} WHERE type = ANY ($1::text[]) GROUP BY type)`

// countTypes counts some types in one statement, and so all at the same moment.
func (s *Store) countTypes(
	ctx context.Context,
	tenant string,
	types map[string]*Type,
	names []string,
) ([]counted, error) {
	selects := make([]string, len(names))
	for i, name := range names {
		selects[i] = fmt.Sprintf(types[name].at(0, countSQL), i+1, types[name].number)
	}
	now := s.Clock.Now()
	rows, err := s.of(tenant).Query(ctx,
		types[names[0]].at(0, sumsSQL)+strings.Join(selects, " UNION ALL ")+" ORDER BY 1",
		pgx.QueryExecModeExec, names, now.Add(-rateWindow), now, untilOthers.Time)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c counted, err error) {
		var place int
		var since *time.Time
		var inWait []byte
		r := &c.Rates
		err = row.Scan(&place, &c.Waiting, &c.Pending, &c.due, &since, &c.Running, &c.Succeeded,
			&c.Failed, &c.Cancelled, &r.Submitted, &r.Attempts, &r.Failures, &r.Finished, &inWait)
		if err == nil && inWait != nil {
			err = json.Unmarshal(inWait, &c.inWait)
		}
		for _, rate := range []*float64{&r.Submitted, &r.Attempts, &r.Failures, &r.Finished} {
			*rate /= rateWindow.Seconds()
		}
		c.t, c.since = types[names[place-1]], orZero(since)
		c.Type, c.Paused, c.Rolls = c.t.Name, c.t.Paused(), len(c.t.rolls())
		return c, err
	})
}
