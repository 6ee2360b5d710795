package counts

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// counted are the counts of a type.
type counted struct {
	Stats
	t      *config.Type
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

// countSQL counts the types whose names are in the array $1 and whose numbers are in $5, each kind
// of row in one pass over all of them: a type without tasks costs next to nothing. %s are the ready
// tables. $6 says whether it adds up the tallies; without, only live tasks are counted. It reads
// only the due rows of wait, by the index on until. It adds up the tallies; for the rates, tallies
// since $2. Redrives of the last minute don't lower the rate of tasks that became final. The
// tallies have no index, since it would cost each task more. Of failed tasks at most all have
// expired: a redrive by a node of the version before doesn't take that count back.
const countSQL = `
WITH sums AS (
  SELECT type AS name, sum(succeeded)::bigint AS succeeded, sum(failed)::bigint AS failed,
    sum(cancelled)::bigint AS cancelled,
    sum(submitted) FILTER (WHERE at > $2) AS submitted,
    sum(attempts) FILTER (WHERE at > $2) AS attempts,
    sum(failures) FILTER (WHERE at > $2) AS failures,
    sum(snoozes) FILTER (WHERE at > $2) AS snoozes,
    sum(succeeded + greatest(failed, 0) + greatest(cancelled, 0)) FILTER (WHERE at > $2) AS finished
  FROM {tallies} WHERE $6::boolean AND type = ANY ($1::text[]) GROUP BY type),
expiries AS (
  SELECT type AS name, sum(expired)::bigint AS expired
  FROM {expired_tallies} WHERE type = ANY ($1::text[]) GROUP BY type),
waiting AS (
  SELECT type, count(*) AS n FROM {wait} WHERE type = ANY ($5::int[]) GROUP BY type),
running AS (
  SELECT type, count(*) AS n FROM {lease} WHERE type = ANY ($5::int[]) GROUP BY type),
pending AS (
  SELECT type, count(*) AS n, count(*) FILTER (WHERE order_time <= $3) AS due,
    min(coalesce(since, order_time)) FILTER (WHERE order_time <= $3) AS since
  FROM (%s) r WHERE type = ANY ($5::int[]) GROUP BY type),
late AS (
  SELECT type, CASE WHEN reason <> 'flow_key' THEN stage END AS stage, reason, count(*) AS tasks,
    min(coalesce(since, order_time)) AS oldest
  FROM {wait} WHERE type = ANY ($5::int[]) AND until = 'infinity' AND order_time <= $3
  GROUP BY 1, 2, 3
  UNION ALL
  SELECT type, NULL, reason, count(*), min(order_time) FROM {wait}
  WHERE type = ANY ($5::int[]) AND until <= $3 GROUP BY 1, 3
  UNION ALL
  SELECT type, NULL, reason, count(*), min(coalesce(since, order_time)) FROM {wait}
  WHERE type = ANY ($5::int[]) AND until = $4 AND order_time <= $3 GROUP BY 1, 3),
lates AS (
  SELECT type, json_agg(json_build_object(
    'stage', stage, 'reason', reason, 'tasks', tasks, 'oldest', oldest)) AS all
  FROM late GROUP BY type)
SELECT place::int, coalesce(waiting.n, 0), coalesce(pending.n, 0), coalesce(due, 0), since,
  coalesce(running.n, 0), coalesce(succeeded, 0), coalesce(failed, 0), coalesce(cancelled, 0),
  greatest(least(coalesce(expired, 0), failed), 0),
  coalesce(submitted, 0)::float8, coalesce(attempts, 0)::float8, coalesce(failures, 0)::float8,
  coalesce(snoozes, 0)::float8, coalesce(finished, 0)::float8, lates.all
FROM unnest($5::int[], $1::text[]) WITH ORDINALITY AS types(type, name, place)
LEFT JOIN waiting USING (type) LEFT JOIN running USING (type) LEFT JOIN pending USING (type)
LEFT JOIN lates USING (type) LEFT JOIN sums USING (name)
LEFT JOIN expiries USING (name)
ORDER BY place`

// countTypes counts some types in one statement, and so all at the same moment.
func (s *Counts) countTypes(
	ctx context.Context, tenant string, types []*config.Type, sums bool,
) ([]counted, error) {
	names := make([]string, len(types))
	numbers := make([]int32, len(types))
	for i, t := range types {
		names[i] = t.Name
		numbers[i] = t.Number()
	}
	now := s.core.Clock.Now()
	rows, _ := s.core.DB(tenant).Query(ctx, StatsSQL(types), pgx.QueryExecModeExec, names,
		now.Add(-RateWindow), now, records.UntilOthers.Time, numbers, sums)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c counted, err error) {
		var place int
		var since *time.Time
		var inWait []byte
		r := &c.Rates
		err = row.Scan(&place, &c.Waiting, &c.Pending, &c.due, &since, &c.Running, &c.Succeeded,
			&c.Failed, &c.Cancelled, &c.Expired, &r.Submitted, &r.Attempts, &r.Failures, &r.Snoozes,
			&r.Finished, &inWait)
		if err == nil && inWait != nil {
			err = json.Unmarshal(inWait, &c.inWait)
		}
		for _, rate := range []*float64{
			&r.Submitted, &r.Attempts, &r.Failures, &r.Snoozes, &r.Finished,
		} {
			*rate /= RateWindow.Seconds()
		}
		c.t = types[place-1]
		c.since = postgres.OrZero(since)
		c.Type = c.t.Name
		c.Paused = c.t.Paused()
		c.Rolls = len(c.t.Rolls())
		return c, err
	})
}

// StatsSQL returns the statement that counts some types.
func StatsSQL(types []*config.Type) string {
	var selects []string
	known := map[string]bool{}
	for _, t := range types {
		for _, one := range config.ReadySelects(t) {
			if !known[one] {
				known[one] = true
				selects = append(selects, one)
			}
		}
	}
	return types[0].SQL(0, fmt.Sprintf(countSQL, strings.Join(selects, " UNION ALL ")))
}
