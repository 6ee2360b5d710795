package upkeep

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
	"github.com/asyncflow/asyncflow/store/internal/tasks"
)

// The methods here are the dry runs of background jobs: they count what a job would do now.

// DryRunRescue counts the leases of a type that ran out.
func (s *Upkeep) DryRunRescue(ctx context.Context, t *config.Type) (int, error) {
	return postgres.CountRows(ctx, s.core.DB(t.Tenant),
		t.SQL(0, `SELECT count(*) FROM {lease} WHERE type = $2 AND until < $1`), s.core.Clock.Now(),
		t.Number())
}

// DryRunPromote counts the waiting tasks that Promote would move.
func (s *Upkeep) DryRunPromote(ctx context.Context, t *config.Type, served []string) (int, error) {
	return postgres.CountRows(ctx, s.core.DB(t.Tenant), t.SQL(0, `SELECT count(*) FROM {wait}
		WHERE type = $4 AND (until <= $1 OR until = 'infinity'
		  AND (reason <> 'flow_key' AND stage = ANY ($2) OR reason = 'flow_key' AND $3))`),
		s.core.Clock.Now().Add(asyncflow.Soon), served, !t.Flow.Blocks(), t.Number())
}

// DryRunVacuum counts the dead rows of a table set's small tables, as the server estimates them.
func (s *Upkeep) DryRunVacuum(ctx context.Context, set *config.TableSet) (int, error) {
	dead := `pg_stat_get_dead_tuples(t.oid)`
	if s.core.Distributed() {
		dead = deadOnWorkersSQL
	}
	return postgres.CountRows(ctx, s.core.DB(set.Tenant), `SELECT coalesce(sum(`+dead+`), 0)::bigint
		FROM (SELECT to_regclass(name) AS oid FROM unnest($1::text[]) name) t`, set.SmallTables())
}

// deadOnWorkersSQL estimates the dead rows of the table t.oid, wherever Citus keeps it.
const deadOnWorkersSQL = `CASE WHEN EXISTS (
  SELECT FROM pg_catalog.pg_dist_partition WHERE logicalrelid = t.oid)
THEN (SELECT sum(result::bigint) FROM run_command_on_shards(t.oid,
  'SELECT pg_stat_get_dead_tuples(''%s''::regclass)') WHERE success)
ELSE pg_stat_get_dead_tuples(t.oid) END`

// DryRunKeys counts a tenant's idempotency keys with a window that is over, by type.
func (s *Upkeep) DryRunKeys(ctx context.Context, tenant string) ([]catalog.Due, error) {
	return s.countByType(ctx, tenant,
		`SELECT type, count(*) FROM {schema}.idempotency_keys
		WHERE expires_at <= $1 GROUP BY type ORDER BY type`, s.core.Clock.Now())
}

// DryRunSchedules counts a tenant's schedules with a due tick, by type.
func (s *Upkeep) DryRunSchedules(ctx context.Context, tenant string) ([]catalog.Due, error) {
	if s.core.SuspendedTenant(tenant) {
		return nil, nil
	}
	return s.countByType(ctx, tenant, `SELECT type, count(*) FROM {schema}.schedules
		WHERE paused_at IS NULL AND next_at <= $1 GROUP BY type ORDER BY type`, s.core.Clock.Now())
}

// DryRunFold counts the tallies of a tenant that Fold would take at first, by type. Fold also
// takes the sums of its earlier batches, which are not counted.
func (s *Upkeep) DryRunFold(ctx context.Context, tenant string) ([]catalog.Due, error) {
	now := s.core.Clock.Now()
	return s.countByType(ctx, tenant, `
		WITH span AS (
		  SELECT type, at, (failed < 0)::int + 2 * (cancelled < 0)::int AS redriven, date_bin(
		    CASE WHEN at < $3 THEN interval '1 day' WHEN at < $2 THEN interval '1 hour'
		      ELSE interval '1 minute' END,
		    at, timestamptz '2000-01-01 00:00Z') AS start
		  FROM {schema}.tallies WHERE at < $1)
		SELECT type, count(*)
		FROM (SELECT *, count(*) OVER (PARTITION BY type, start, redriven) AS rows FROM span) s
		WHERE rows > 1 OR at <> start GROUP BY type ORDER BY type`,
		now.Add(-counts.RateWindow).Truncate(time.Minute),
		now.Add(-keepMinutes).Truncate(time.Hour),
		now.Add(-keepHours).Truncate(24*time.Hour))
}

// DryRunOperations counts the tasks that are left for a tenant's operations with a due step, by
// type.
func (s *Upkeep) DryRunOperations(
	ctx context.Context, tenant string, before time.Time,
) ([]catalog.Due, error) {
	return s.countByType(ctx, tenant,
		`SELECT type, sum(greatest(total - done - skipped, 0))::bigint FROM {schema}.operations
		WHERE state = 'running' AND next_at < $1 GROUP BY type ORDER BY type`, before)
}

// DryRunForgetOperations counts a tenant's operations that ended long ago, by type.
func (s *Upkeep) DryRunForgetOperations(ctx context.Context, tenant string) ([]catalog.Due, error) {
	return s.countByType(ctx, tenant, `SELECT type, count(*) FROM {schema}.operations
		WHERE state <> 'running' AND finished_at < $1 GROUP BY type ORDER BY type`,
		s.core.Clock.Now().Add(-tasks.OperationsKept))
}

// countByType runs a statement that returns types and counts.
func (s *Upkeep) countByType(
	ctx context.Context, tenant, sql string, args ...any,
) ([]catalog.Due, error) {
	rows, _ := s.core.DB(tenant).Query(ctx,
		strings.ReplaceAll(sql, "{schema}", postgres.Quote(schema.Of(tenant))), args...)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (catalog.Due, error) {
		d := catalog.Due{Tenant: tenant}
		err := row.Scan(&d.Type, &d.Rows)
		return d, err
	})
	return all, postgres.Wrap(err, "countByType(%q)", tenant)
}
