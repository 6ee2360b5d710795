package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// maxMarks is the most marks of an answer: the newest ones.
const maxMarks = 200

// Mark is something on the time axis of a history.
type Mark struct {
	At    time.Time
	Until time.Time // zero: it was a moment, or isn't over
	Kind  string    // deploy, pause, alert or breaker
	Type  string    // "": of no single type
	Text  string
}

// marksSQL reads the newest $4 marks between $2 and $3, of the type $1 or of all ("").
//
// A pause and its end are entries of the audit, and a pause that isn't over is in task_types, also
// if the audit no longer has it. A breaker's state lasts until the next one. An alert belongs to
// the type that its subject names, alone or before a slash.
const marksSQL = `
SELECT at, until, kind, type, text FROM (
  SELECT applied_at AS at, NULL::timestamptz AS until, 'deploy' AS kind, name AS type,
    'version ' || version AS text
  FROM (SELECT name, version, applied_at FROM {schema}.type_versions
    UNION ALL SELECT name, version, updated_at FROM {schema}.task_types) v
  UNION ALL
  SELECT at, next, 'pause', object, 'paused'
  FROM (SELECT at, action, object, lag(action) OVER w AS before,
      min(at) FILTER (WHERE action = 'task_type.resume')
        OVER (w ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS next
    FROM {schema}.audit
    WHERE action IN ('task_type.pause', 'task_type.resume') AND outcome = 'done' AND at < $3
      AND at >= $2::timestamptz - interval '1 day'
    WINDOW w AS (PARTITION BY object ORDER BY at, id)) p
  WHERE action = 'task_type.pause' AND before IS DISTINCT FROM 'task_type.pause'
    AND NOT EXISTS (SELECT FROM {schema}.task_types t
      WHERE t.name = p.object AND t.paused_at <= p.at AND next IS NULL)
  UNION ALL
  SELECT paused_at, NULL, 'pause', name, concat_ws(': ', 'paused', pause_reason)
  FROM {schema}.task_types WHERE paused_at IS NOT NULL
  UNION ALL
  SELECT since, resolved_at, 'alert', coalesce(t.name, ''), concat_ws(' ', alert, subject)
  FROM {schema}.alert_episodes a
    LEFT JOIN {schema}.task_types t ON t.name = split_part(a.subject, '/', 1)
  UNION ALL
  SELECT at, next, 'breaker', type, concat_ws(' ', stage, state || ':', reason)
  FROM (SELECT e.type, e.stage, c.state, c.reason, c.at,
      lead(c.at) OVER (PARTITION BY c.endpoint ORDER BY c.at) AS next
    FROM {schema}.endpoint_changes c JOIN {schema}.endpoints e ON e.id = c.endpoint) s
  WHERE state <> 'closed') m
WHERE $1 IN ('', type) AND at < $3
  AND (at >= $2 OR kind <> 'deploy' AND (until IS NULL OR until >= $2))
ORDER BY at DESC LIMIT $4`

// marks returns the marks of a query's time, oldest first. more reports that there are older ones.
func (s *History) marks(ctx context.Context, q Query) (all []Mark, more bool, err error) {
	rows, err := s.core.DB(q.Tenant).Query(ctx, fill(q.Tenant, marksSQL), q.Type, q.From, q.Until,
		maxMarks+1)
	if err != nil {
		return nil, false, err
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (m Mark, err error) {
		var until *time.Time
		err = row.Scan(&m.At, &until, &m.Kind, &m.Type, &m.Text)
		m.Until = postgres.OrZero(until)
		return m, err
	})
	if len(all) > maxMarks {
		all, more = all[:maxMarks], true
	}
	slices.SortStableFunc(all, func(a, b Mark) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Kind, b.Kind))
	})
	return all, more, err
}
