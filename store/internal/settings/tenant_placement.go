package settings

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Placements returns the workers of Citus that have the tenants, by tenant. Tenants on the server
// of the URL are left out.
func (s *tenants) Placements(
	ctx context.Context, tenants ...string,
) (map[string]postgres.Server, error) {
	if !s.core.Distributed() {
		return nil, nil
	}
	return catalog.Placements(ctx, s.core.Base, tenants)
}

// PlannedMove is a move that fills workers more evenly.
type PlannedMove struct {
	Tenant   string
	From, To postgres.Server
	Bytes    int64 // of the tables with their indexes
}

// planSQL has Citus plan by the sizes of schemas. A schema moves as a whole; the plan names each
// of its tables.
const planSQL = `
SELECT substr(n.nspname, 8), p.sourcename, p.sourceport, p.targetname, p.targetport,
  sum(p.shard_size)::bigint
FROM get_rebalance_table_shards_plan() WITH ORDINALITY AS p (table_name, shardid, shard_size,
  sourcename, sourceport, targetname, targetport, nr)
JOIN pg_class c ON c.oid = p.table_name JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE starts_with(n.nspname, 'tenant_')
GROUP BY 1, 2, 3, 4, 5 ORDER BY min(p.nr)`

// PlanRebalance returns the moves that Citus proposes so that its workers are filled evenly, in
// their order. CodeConflict: there is no Citus, or the plan has a move from or to the coordinator.
func PlanRebalance(ctx context.Context, url string) ([]PlannedMove, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, postgres.ConnectError(url, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := needCitus(ctx, conn); err != nil {
		return nil, err
	}
	rows, _ := conn.Query(ctx, planSQL) // CollectRows returns its error
	plan, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p PlannedMove, err error) {
		err = row.Scan(&p.Tenant, &p.From.Host, &p.From.Port, &p.To.Host, &p.To.Port, &p.Bytes)
		return p, err
	})
	if err != nil {
		return nil, postgres.Wrap(err, "PlanRebalance")
	}
	return plan, postgres.Wrap(betweenWorkers(ctx, conn, plan), "PlanRebalance")
}

// betweenWorkers refuses a plan that would fail halfway, at a move from or to the coordinator.
func betweenWorkers(ctx context.Context, q postgres.Querier, plan []PlannedMove) error {
	rows, _ := q.Query(ctx, `SELECT nodename, nodeport FROM pg_dist_node WHERE groupid = 0`)
	coordinators, err := pgx.CollectRows(rows, pgx.RowToStructByPos[postgres.Server])
	if err != nil {
		return err
	}
	for _, p := range plan {
		if slices.Contains(coordinators, p.From) || slices.Contains(coordinators, p.To) {
			return asyncflow.Errorf(asyncflow.CodeConflict, "Citus plans to move the tenant %s "+
				"from %s to %s, but tenants move only between workers, and one of the two is the "+
				"coordinator: set its node property shouldhaveshards to false", p.Tenant, p.From,
				p.To)
		}
	}
	return nil
}
