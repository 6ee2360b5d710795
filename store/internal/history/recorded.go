package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// RecordedSpan is a time in which nodes recorded: a step in it that has no point is one in which
// nothing happened.
type RecordedSpan struct{ From, Until time.Time }

// gap is the shortest time without a recording that ends a span. Recordings are a minute apart.
const gap = 5 * time.Minute

// extendSQL says that nodes recorded from $4 until $1. It extends the newest span, or begins one if
// $4 is more than the gap $2 after that. It deletes spans that ended before $3. Two nodes that
// begin one at once leave two spans in the same time, which does no harm.
const extendSQL = `
WITH newest AS (
  SELECT since, until FROM asyncflow.history_spans ORDER BY since DESC LIMIT 1),
extended AS (
  UPDATE asyncflow.history_spans s SET until = greatest(s.until, $1) FROM newest n
  WHERE s.since = n.since AND n.until >= $4::timestamptz - $2::interval RETURNING 1),
forgotten AS (DELETE FROM asyncflow.history_spans WHERE until < $3)
INSERT INTO asyncflow.history_spans (since, until)
SELECT $4, $1 WHERE NOT EXISTS (SELECT FROM extended) ON CONFLICT DO NOTHING`

// ExtendHistory says that the history of all tenants is recorded from a time until another one.
func (s *History) ExtendHistory(ctx context.Context, from, until time.Time) error {
	_, err := s.core.Base.Exec(ctx, extendSQL, until, gap, forgetBefore(until), from)
	return postgres.Wrap(err, "ExtendHistory")
}

// recorded returns when nodes recorded in a query's time, by steps, oldest first. A step counts if
// a part of it was recorded.
func (s *History) recorded(ctx context.Context, q Query) ([]RecordedSpan, error) {
	rows, err := s.core.Base.Query(ctx, `
		SELECT since, until FROM asyncflow.history_spans WHERE since < $2 AND until >= $1
		ORDER BY since`, q.From, q.Until)
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RecordedSpan])
	return q.bySteps(all), err
}

// bySteps rounds spans, oldest first, to steps, outwards, and joins spans that touch.
func (q Query) bySteps(spans []RecordedSpan) (all []RecordedSpan) {
	for _, r := range spans {
		r.From, r.Until = r.From.UTC().Truncate(q.Step), r.Until.UTC().Truncate(q.Step).Add(q.Step)
		if r.From.Before(q.From) {
			r.From = q.From
		}
		if r.Until.After(q.Until) {
			r.Until = q.Until
		}
		last := len(all) - 1
		switch {
		case last < 0 || r.From.After(all[last].Until):
			all = append(all, r)
		case r.Until.After(all[last].Until):
			all[last].Until = r.Until
		}
	}
	return all
}
