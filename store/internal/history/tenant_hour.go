package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// TenantHour is what a tenant's history says of its last hour, and the number of its alerts.
type TenantHour struct {
	Failed int64 // tasks that failed for good, up to the last recorded minute
	// Due is the number of due tasks that were not under way and didn't wait for other tasks, as
	// it was last sampled. 0 if that was more than three minutes ago.
	Due    int64
	Alerts int // that are firing
}

// sampled is for how long a sample of the due tasks counts: one is taken a minute.
const sampled = 3 * time.Minute

// tenantHourSQL reads the minutes since the hour $1 of all types together, a row for each hour, and
// counts the alerts. Without such minutes there is one row.
const tenantHourSQL = `
SELECT a.firing, h.at, h.points
FROM (SELECT count(*)::int AS firing FROM {schema}.alert_episodes WHERE resolved_at IS NULL) a
LEFT JOIN {schema}.type_history h ON coalesce(h.type, '') = '' AND NOT h.hourly AND h.stage = ''
  AND h.at >= $1`

// TenantHour returns the last hour of a tenant. It counts no tasks.
func (s *History) TenantHour(ctx context.Context, tenant string) (h TenantHour, err error) {
	now := s.core.Clock.Now().UTC()
	since := now.Add(-time.Hour)
	rows, err := postgres.Unprepared{Q: s.core.DB(tenant)}.Query(ctx, fill(tenant, tenantHourSQL),
		since.Truncate(time.Hour))
	if err != nil {
		return h, postgres.Wrap(err, "TenantHour(%q)", tenant)
	}
	var at *time.Time
	var points []byte
	var sample time.Time
	_, err = pgx.ForEachRow(rows, []any{&h.Alerts, &at, &points}, func() error {
		hour, err := unpack(points)
		if err != nil {
			return err
		}
		for place, v := range hour.values() {
			minute := minutes.timeOf(*at, place)
			if minute.Before(since) {
				continue
			}
			h.Failed += v[Failed]
			if minute.After(now.Add(-sampled)) && minute.After(sample) {
				h.Due, sample = v.due(), minute
			}
		}
		return nil
	})
	return h, postgres.Wrap(err, "TenantHour(%q)", tenant)
}

// due returns how many tasks were due and didn't wait for other tasks.
func (v Values) due() (n int64) {
	for why, tasks := range v.Backlog() {
		if !why.ForOthers() {
			n += tasks
		}
	}
	return n
}
