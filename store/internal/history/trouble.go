package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Trouble is what is wrong in a tenant.
type Trouble struct {
	Tenant string
	Alerts int // that are firing
	// Due is the number of due tasks that were not under way and didn't wait for other tasks, as
	// it was last sampled. 0 if that was more than three minutes ago.
	Due       int64
	OldestDue time.Time // since when the oldest of them has been due
	Failed    int64     // tasks that failed for good in the last hour, up to a recorded minute
	Unread    bool      // the tenant's tables could not be read
}

// sampled is how long a sample of the due tasks counts. A sample is taken each minute.
const sampled = 3 * time.Minute

// troublesSQL reads the tenants in trouble. It leaves out suspended and deleted ones.
const troublesSQL = `
SELECT x.tenant, x.alerts, CASE WHEN x.sampled_at > $2 THEN x.due ELSE 0 END,
  CASE WHEN x.sampled_at > $2 THEN x.oldest_due END, f.failed, x.unread
FROM asyncflow.tenant_trouble x JOIN asyncflow.tenants t ON t.slug = x.tenant
CROSS JOIN LATERAL (SELECT coalesce(sum(n), 0)::bigint AS failed
  FROM unnest(x.failed_at, x.failed) u (at, n) WHERE at >= $1) f
WHERE t.suspended_at IS NULL AND t.deleted_at IS NULL
  AND (x.alerts > 0 OR f.failed > 0 OR x.unread OR x.due > 0 AND x.sampled_at > $2)`

// Troubles returns the active tenants in which something is wrong, and what, as nodes noted it.
func (s *History) Troubles(ctx context.Context) (all []Trouble, err error) {
	now := s.core.Clock.Now()
	rows, err := s.core.Base.Query(ctx, troublesSQL, now.Add(-time.Hour), now.Add(-sampled))
	if err != nil {
		return nil, postgres.Wrap(err, "Troubles")
	}
	all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t Trouble, err error) {
		var oldest *time.Time
		err = row.Scan(&t.Tenant, &t.Alerts, &t.Due, &oldest, &t.Failed, &t.Unread)
		t.OldestDue = postgres.OrZero(oldest)
		return t, err
	})
	return all, postgres.Wrap(err, "Troubles")
}

// noteSQL notes what is wrong in a tenant. It writes no row for a tenant that is well and was never
// in trouble, nor one that says the same as before, unless its sample counts for longer. It waits
// for a tenant that is just being dropped, and then finds it gone.
const noteSQL = `
INSERT INTO asyncflow.tenant_trouble AS x
  (tenant, alerts, failed_at, failed, due, oldest_due, sampled_at)
SELECT slug, $2::int, $3::timestamptz[], $4::bigint[], $5::bigint, $6::timestamptz, $7::timestamptz
FROM asyncflow.tenants WHERE slug = $1
  AND ($2 > 0 OR $4 <> '{}' OR $5 > 0
    OR EXISTS (SELECT FROM asyncflow.tenant_trouble WHERE tenant = $1))
FOR KEY SHARE OF tenants
ON CONFLICT (tenant) DO UPDATE SET alerts = $2, failed_at = $3, failed = $4, due = $5,
  oldest_due = $6, sampled_at = $7, unread = false
WHERE x.due > 0 OR (x.alerts, x.failed_at, x.failed, x.due, x.unread)
  IS DISTINCT FROM ($2, $3, $4, $5, false)`

// noteTrouble notes what is wrong in a tenant for Troubles: its alerts, what its history says of
// the last hour, and the due tasks that a recording has just found.
func (s *History) noteTrouble(ctx context.Context, tenant string, due dueTasks) error {
	alerts, at, failed, err := s.lastHour(ctx, tenant)
	if err != nil {
		return err
	}
	_, err = s.core.Base.Exec(ctx, noteSQL, tenant, alerts, at, failed, due.n,
		postgres.OrNull(due.oldest), s.core.Clock.Now())
	return err
}

// NoteUnread notes that a tenant's history could not be recorded, until it is.
func (s *History) NoteUnread(ctx context.Context, tenant string) error {
	_, err := s.core.Base.Exec(ctx, `
		INSERT INTO asyncflow.tenant_trouble AS x (tenant, unread)
		SELECT slug, true FROM asyncflow.tenants WHERE slug = $1 FOR KEY SHARE
		ON CONFLICT (tenant) DO UPDATE SET unread = true WHERE NOT x.unread`, tenant)
	return postgres.Wrap(err, "NoteUnread(%q)", tenant)
}

// lastHourSQL reads the minutes since the hour $1 of all types together, a row for each hour, and
// counts the alerts. Without such minutes there is one row.
const lastHourSQL = `
SELECT a.firing, h.at, h.points
FROM (SELECT count(*)::int AS firing FROM {schema}.alert_episodes WHERE resolved_at IS NULL) a
LEFT JOIN {schema}.type_history h ON coalesce(h.type, '') = '' AND NOT h.hourly AND h.stage = ''
  AND h.at >= $1
ORDER BY h.at`

// lastHour returns how many alerts of a tenant are firing, the minutes of the last hour with tasks
// that failed for good, and how many failed in each.
func (s *History) lastHour(
	ctx context.Context, tenant string,
) (alerts int, minutesAt []time.Time, failed []int64, err error) {
	now := s.core.Clock.Now().UTC()
	since := now.Add(-time.Hour)
	minutesAt, failed = []time.Time{}, []int64{}
	rows, err := postgres.Unprepared{Q: s.core.DB(tenant)}.Query(ctx, fill(tenant, lastHourSQL),
		since.Truncate(time.Hour))
	if err != nil {
		return 0, nil, nil, err
	}
	var at *time.Time
	var points []byte
	_, err = pgx.ForEachRow(rows, []any{&alerts, &at, &points}, func() error {
		hour, err := unpack(points)
		if err != nil {
			return err
		}
		for place, n := range hour[Failed] {
			minute := minutes.timeOf(*at, place)
			// A clock that was set back leaves later minutes. The table takes 61.
			if n > 0 && !minute.Before(since) && !minute.After(now) {
				minutesAt, failed = append(minutesAt, minute), append(failed, n)
			}
		}
		return nil
	})
	return alerts, minutesAt, failed, err
}
