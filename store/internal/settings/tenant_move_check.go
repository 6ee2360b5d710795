package settings

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// check finds out where the tenant is, and refuses what can't be.
func (m *move) check(ctx context.Context) error {
	if err := needCitus(ctx, m.side); err != nil {
		return err
	}
	t, err := config.ReadTenant(ctx, m.side, m.Tenant, "")
	if err != nil {
		return err
	}
	if t.State() == asyncflow.TenantDropping {
		return stillThere(t)
	}
	err = m.side.QueryRow(ctx, `SELECT coalesce(role, '') FROM asyncflow.tenants WHERE slug = $1`,
		m.Tenant).Scan(&m.role)
	if err != nil {
		return err
	}
	at, err := catalog.Placements(ctx, m.side, []string{m.Tenant})
	if err != nil {
		return err
	}
	var there bool
	if m.from, there = at[m.Tenant]; !there {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"the tenant %s is on the coordinator: only tenants on a worker can move", m.Tenant)
	}
	if err := checkTold(ctx, m.side, m.from); err != nil {
		return err
	}
	if m.To, err = findWorker(ctx, m.side, m.To); err != nil {
		return err
	}
	if m.To == m.from {
		return asyncflow.Errorf(asyncflow.CodeConflict, "the tenant %s is on %s already", m.Tenant,
			m.To)
	}
	return checkWAL(ctx, m.side)
}

// checkTold refuses a worker that isn't told of the move: nodes that don't know it yet would go on
// writing there, as that worker says that the tenant is still there, and the rows would be lost.
func checkTold(ctx context.Context, q postgres.Querier, from postgres.Server) error {
	var told bool
	err := q.QueryRow(ctx, `SELECT hasmetadata AND metadatasynced FROM pg_dist_node
		WHERE nodename = $1 AND nodeport = $2`, from.Host, from.Port).Scan(&told)
	if err != nil || told {
		return err
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "the worker %s isn't told of moves: its "+
		"metadata is not in sync (hasmetadata, metadatasynced in pg_dist_node); run SELECT "+
		"start_metadata_sync_to_node('%s', %d) on the coordinator first", from, from.Host,
		from.Port)
}

// needCitus refuses a database without Citus.
func needCitus(ctx context.Context, q postgres.Querier) error {
	version, err := schema.CitusVersion(ctx, q)
	if err != nil || version != "" {
		return err
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "the database has no extension Citus: all "+
		"tenants are on its one server, and none can move")
}

// findWorker finds a worker that may have tenants.
func findWorker(
	ctx context.Context, q postgres.Querier, wanted postgres.Server,
) (found postgres.Server, err error) {
	rows, _ := q.Query(ctx, `SELECT nodename, nodeport FROM pg_dist_node
		WHERE noderole = 'primary' AND isactive AND shouldhaveshards AND groupid > 0
		ORDER BY 1, 2`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[postgres.Server])
	if err != nil {
		return found, err
	}
	names := make([]string, len(all))
	var matching []postgres.Server
	for i, s := range all {
		names[i] = s.String()
		if s.Host == wanted.Host && (wanted.Port == 0 || s.Port == wanted.Port) {
			matching = append(matching, s)
		}
	}
	switch list := strings.Join(names, ", "); {
	case len(matching) == 0 && wanted.Port == 0:
		return found, asyncflow.InvalidField("to",
			"is %s, which is no active worker; there are: %s", wanted.Host, list)
	case len(matching) == 0:
		return found, asyncflow.InvalidField("to",
			"is %s, which is no active worker; there are: %s", wanted, list)
	case len(matching) > 1:
		return found, asyncflow.InvalidField("to", "is %s, where several workers are: name the "+
			"port; there are: %s", wanted.Host, list)
	}
	return matching[0], nil
}

// checkWAL refuses servers without logical replication.
func checkWAL(ctx context.Context, q postgres.Querier) error {
	rows, _ := q.Query(ctx, `SELECT nodename, nodeport FROM run_command_on_workers('SHOW wal_level')
		WHERE NOT success OR result <> 'logical' ORDER BY 1, 2`)
	without, err := pgx.CollectRows(rows, pgx.RowToStructByPos[postgres.Server])
	if err != nil || len(without) == 0 {
		return err
	}
	names := make([]string, len(without))
	for i, s := range without {
		names[i] = s.String()
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "a tenant moves by logical replication: set "+
		"wal_level = logical on each worker and restart it; it isn't, or the worker can't be "+
		"reached: %s", strings.Join(names, ", "))
}
