package tasks

import (
	"context"
	"reflect"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// estimateSQL adds up the tallies of the types $1: their live tasks, exactly, and the tasks that
// became final since their oldest roll was opened, in the statuses $4. Tasks that ended before that
// went with their roll. It is 0 if a roll of their tables was compacted or trimmed: tasks are gone
// that ended later. $2 and $3 hold the table set and the position of the oldest roll of each.
const estimateSQL = `
SELECT CASE WHEN EXISTS (SELECT FROM {rolls} r WHERE r.table_set = ANY ($2)
    AND (r.remaining_since IS NOT NULL OR r.remaining_types IS NOT NULL OR r.trim_at IS NOT NULL))
  THEN 0 ELSE coalesce(sum(
  CASE WHEN $5 THEN y.submitted - y.succeeded - y.failed - y.cancelled ELSE 0 END
  + CASE WHEN y.at < o.opened_at THEN 0 ELSE
      CASE WHEN 'succeeded' = ANY ($4::text[]) THEN y.succeeded ELSE 0 END
      + CASE WHEN 'failed' = ANY ($4) THEN y.failed ELSE 0 END
      + CASE WHEN 'cancelled' = ANY ($4) THEN y.cancelled ELSE 0 END END), 0)::bigint END
FROM {tallies} y JOIN (
  SELECT u.name, coalesce(date_trunc('day', r.opened_at, 'UTC'), '-infinity') AS opened_at
  FROM unnest($1::text[], $2::text[], $3::int[]) AS u (name, set, position)
  LEFT JOIN {rolls} r ON r.table_set = u.set AND r.position = u.position) o ON o.name = y.type`

// estimate returns about how many tasks of types a filter finds, by the tallies; 0: they don't say.
// They know neither children nor anything but statuses. It is too low or too high by what ended on
// the day when the oldest roll was opened.
func (s *lists) estimate(
	ctx context.Context, tenant string, types []*config.Type, f Filter,
) (n int64, err error) {
	if !f.onlyStatus() || len(types) == 0 || f.NoChildren && hasChildren(types) {
		return 0, nil
	}
	finals := []string{string(asyncflow.StatusSucceeded), string(asyncflow.StatusFailed),
		string(asyncflow.StatusCancelled)}
	if f.Status != "" {
		finals = []string{string(f.Status)}
	}
	names := make([]string, len(types))
	sets := make([]string, len(types))
	positions := make([]int, len(types))
	for i, t := range types {
		names[i] = t.Name
		sets[i] = t.SetAt(t.First).Name
		positions[i] = t.First
	}
	err = s.core.DB(tenant).QueryRow(ctx, types[0].SQL(0, estimateSQL), names, sets, positions,
		finals, f.Status == "").Scan(&n)
	return n, postgres.Wrap(err, "estimate(%q, %q)", tenant, f.Type)
}

// onlyStatus reports whether a filter selects only by a type and a status that the tallies count.
func (f Filter) onlyStatus() bool {
	if f.Status != "" && !f.Status.Final() || !f.Labels.IsZero() || len(f.IDs) > 0 {
		return false
	}
	known := Filter{Type: f.Type, Status: f.Status, NoChildren: f.NoChildren, Labels: f.Labels,
		IDs: f.IDs}
	return reflect.DeepEqual(f, known) // so no other field selects any
}

// hasChildren reports whether tasks of some types fan out.
func hasChildren(types []*config.Type) bool {
	for _, t := range types {
		for _, s := range t.Stages {
			if s.FanOut != nil || s.Quorum != nil {
				return true
			}
		}
	}
	return false
}
