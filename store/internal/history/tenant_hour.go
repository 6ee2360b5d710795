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

	sampledAt time.Time
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

// TenantHours returns the last hours of tenants, many in one transaction. It counts no tasks. After
// an error it returns what it has read before.
func (s *History) TenantHours(
	ctx context.Context, tenants []string,
) (hours map[string]TenantHour, err error) {
	now := s.core.Clock.Now().UTC()
	since := now.Add(-time.Hour)
	hours = map[string]TenantHour{}
	err = s.core.AskTenants(ctx, tenants, tenantHourSQL, []any{since.Truncate(time.Hour)},
		func(tenant string, rows pgx.Rows) error {
			var h TenantHour
			var at *time.Time
			var points []byte
			_, err := pgx.ForEachRow(rows, []any{&h.Alerts, &at, &points}, func() error {
				hour, err := unpack(points)
				for place, v := range hour.values() {
					h.add(minutes.timeOf(*at, place), v, since, now)
				}
				return err
			})
			if err == nil {
				hours[tenant] = h
			}
			return err
		})
	return hours, postgres.Wrap(err, "TenantHours(%d tenants)", len(tenants))
}

// add adds a minute since a time.
func (h *TenantHour) add(minute time.Time, v Values, since, now time.Time) {
	if minute.Before(since) {
		return
	}
	h.Failed += v[Failed]
	if minute.After(now.Add(-sampled)) && minute.After(h.sampledAt) {
		h.Due, h.sampledAt = v.due(), minute
	}
}

// Trouble reports whether anything is wrong.
func (h TenantHour) Trouble() bool { return h.Failed > 0 || h.Due > 0 || h.Alerts > 0 }

// due returns how many tasks were due and didn't wait for other tasks.
func (v Values) due() (n int64) {
	for why, tasks := range v.Backlog() {
		if !why.ForOthers() {
			n += tasks
		}
	}
	return n
}
