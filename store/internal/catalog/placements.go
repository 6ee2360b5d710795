package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// placementsSQL reads where the schemas of tenants are: of those in $1, or of all if it is null.
// All tables of one are at one place.
const placementsSQL = `
SELECT substr(n.nspname, 8), w.nodename, w.nodeport
FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'rolls'
JOIN pg_dist_shard s ON s.logicalrelid = c.oid
JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node w USING (groupid)
WHERE starts_with(n.nspname, 'tenant_') AND w.noderole = 'primary' AND w.groupid > 0
  AND ($1::text[] IS NULL OR substr(n.nspname, 8) = ANY ($1))`

// Placements returns the workers of Citus that have tenants: some, or all if tenants is nil. A
// tenant that is not on a worker is left out.
func Placements(
	ctx context.Context, q postgres.Querier, tenants []string,
) (map[string]postgres.Server, error) {
	rows, _ := q.Query(ctx, placementsSQL, tenants) // ForEachRow returns its error
	found := map[string]postgres.Server{}
	var tenant string
	var s postgres.Server
	_, err := pgx.ForEachRow(rows, []any{&tenant, &s.Host, &s.Port}, func() error {
		found[tenant] = s
		return nil
	})
	return found, postgres.Wrap(err, "look where tenants are")
}
