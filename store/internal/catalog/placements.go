package catalog

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// place is where a tenant is.
type place struct {
	server postgres.Server
	table  int64 // the number of one of its tables, see postgres.PlacedTables
	// owned says that the role of the tenant's work owns the tables. Otherwise statements name the
	// ones that Citus shows.
	owned bool
	// synced says that the server is told of moves. What another one says of places may be old.
	synced bool
}

// placesSQL reads where the schemas of tenants are, and the number of one table of each: of tenants
// in $1, or of all if it is null. All tables of one are at one place. Only their owner can have the
// lock that keeps them there: with $2 the tenant's role needs it, otherwise the user.
const placesSQL = `
SELECT substr(n.nspname, 8), w.nodename, w.nodeport, s.shardid,
  coalesce(pg_has_role(CASE WHEN $2 THEN to_regrole(quote_ident(t.role))::oid
    ELSE to_regrole(quote_ident(current_user))::oid END, c.relowner, 'USAGE'), false),
  w.hasmetadata AND w.metadatasynced
FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = 'rolls'
LEFT JOIN asyncflow.tenants t ON t.slug = substr(n.nspname, 8)
JOIN pg_dist_shard s ON s.logicalrelid = c.oid
JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node w USING (groupid)
WHERE starts_with(n.nspname, 'tenant_') AND w.noderole = 'primary' AND w.groupid > 0
  AND ($1::text[] IS NULL OR substr(n.nspname, 8) = ANY ($1))`

// readPlaces returns where tenants are: some, or all if tenants is nil. A tenant that is not on a
// worker of Citus is left out. With roles, owned is about the tenant's role.
func readPlaces(
	ctx context.Context, q postgres.Querier, tenants []string, roles bool,
) (map[string]place, error) {
	rows, _ := q.Query(ctx, placesSQL, tenants, roles) // ForEachRow returns its error
	found := map[string]place{}
	var tenant string
	var p place
	into := []any{&tenant, &p.server.Host, &p.server.Port, &p.table, &p.owned, &p.synced}
	_, err := pgx.ForEachRow(rows, into, func() error {
		found[tenant] = p
		return nil
	})
	return found, postgres.Wrap(err, "look where tenants are")
}

// Placements returns the workers of Citus that have tenants: some, or all if tenants is nil. A
// tenant that is not on a worker is left out.
func Placements(
	ctx context.Context, q postgres.Querier, tenants []string,
) (map[string]postgres.Server, error) {
	places, err := readPlaces(ctx, q, tenants, false)
	servers := make(map[string]postgres.Server, len(places))
	for tenant, p := range places {
		servers[tenant] = p.server
	}
	return servers, err
}
