package schema

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// What a tenant's role asks of the coordinator of Citus goes on to the tenant's worker over a
// connection that logs in there as that role. So where tenants are on workers, the roles may log in
// on all servers, and Citus is let in by a rule of pg_hba.conf. Nobody else is: a role has no
// password, and one that it gave itself is over by VALID UNTIL. All of them are members of one
// more role, without any right, so that one rule is for all. See ADR 74.

// loginGroup returns the name of the role that all roles that log in are members of. No tenant's
// role has that name.
func (f *RoleFence) loginGroup() string { return f.prefix + "-logins" }

// loginSQL lets a role log in, by no password.
func (f *RoleFence) loginSQL(role string) string {
	name := postgres.Quote(role)
	return `ALTER ROLE ` + name + ` LOGIN VALID UNTIL '-infinity'; GRANT ` +
		postgres.Quote(f.loginGroup()) + ` TO ` + name
}

// keepNone has Citus close its connections to workers at the end of each transaction of a session.
// It would keep one for each role that the session has ever taken.
const keepNone = `SET ` + postgres.KeptSetting + ` = 0`

// PrepareWorkers makes the roles of a new tenant on all servers of Citus, and refuses if a worker
// doesn't let the roles log in. With or without roles it runs closeInternals on each server.
func PrepareWorkers(ctx context.Context, url, tenant string, noRoles bool) error {
	f, err := OpenRoleFence(ctx, url)
	if err != nil {
		return postgres.ConnectErrorOr(err, url)
	}
	defer f.Close(ctx)
	if noRoles {
		return f.closeEverywhere(ctx, url)
	}
	f.logins = true
	return f.needEverywhere(ctx, url, f.prefix, f.RoleOf(tenant))
}

// needEverywhere is need on this server and, where roles log in, on all workers of Citus. There it
// also refuses if a worker doesn't let them.
func (f *RoleFence) needEverywhere(ctx context.Context, url string, names ...string) error {
	if err := f.need(ctx, names...); err != nil || !f.logins {
		return err
	}
	if err := f.closeInternals(ctx); err != nil {
		return err
	}
	workers, err := workersOf(ctx, f.db)
	if err != nil {
		return err
	}
	for _, worker := range workers {
		if err := f.needAt(ctx, url, worker, names); err != nil {
			return err
		}
	}
	return CheckLogins(ctx, f.conn, f.prefix)
}

// needAt is need at a worker.
func (f *RoleFence) needAt(
	ctx context.Context, url string, worker postgres.Server, names []string,
) error {
	there, err := f.fenceAt(ctx, url, worker)
	if err != nil {
		return err
	}
	defer there.conn.Close(context.WithoutCancel(ctx))
	err = postgres.FirstError(there.need(ctx, names...), there.closeInternals(ctx))
	if err != nil {
		return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
			Message: fmt.Sprintf("at the worker %s: %v", worker, err)}
	}
	return nil
}

// fenceAt returns the fence at a worker. Its connection is to be closed.
func (f *RoleFence) fenceAt(
	ctx context.Context, url string, worker postgres.Server,
) (*RoleFence, error) {
	conn, err := postgres.ConnectTo(ctx, url, worker)
	if err != nil {
		return nil, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
			Message: fmt.Sprintf("can't connect to the worker %s of Citus with the user and "+
				"password of DATABASE_URL", worker)}
	}
	// Citus hides the tables that it has there. A failure comes again with the next statement.
	_, _ = conn.Exec(ctx, `SET citus.override_table_visibility = off`)
	return &RoleFence{db: conn, conn: conn, user: f.user, prefix: f.prefix, logins: true}, nil
}

// workersOf returns the servers of Citus but the coordinator.
func workersOf(ctx context.Context, q postgres.Querier) ([]postgres.Server, error) {
	rows, _ := q.Query(ctx, `SELECT nodename AS host, nodeport AS port
		FROM pg_catalog.pg_dist_node
		WHERE noderole = 'primary' AND isactive AND groupid > 0 ORDER BY 1, 2`)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByName[postgres.Server])
	return all, postgres.Wrap(err, "look for the workers of Citus")
}

// beginner is a connection or a pool.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// reachedSQL has each worker tell from which address this server's Citus connects to it, and
// whether it does at all. The server itself is left out.
const reachedSQL = `SELECT r.nodename, r.nodeport, r.success, r.result
FROM run_command_on_workers($$SELECT pg_catalog.host(pg_catalog.inet_client_addr())$$) r
JOIN pg_catalog.pg_dist_node n USING (nodename, nodeport)
WHERE n.groupid <> (SELECT groupid FROM pg_catalog.pg_dist_local_group)
ORDER BY 1, 2`

// refusedLogin is a worker that lets Citus in as the user of a connection, and not as a role.
type refusedLogin struct {
	worker postgres.Server
	from   string // the address that the worker sees
}

// refusedLogins returns the workers that don't let Citus log in as a role from the server of db. A
// worker that is gone is left out.
func refusedLogins(ctx context.Context, db beginner, role string) (all []refusedLogin, err error) {
	tx, err := db.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	reached := map[string]map[postgres.Server]string{}
	for _, as := range []string{"none", role} {
		if _, err := tx.Exec(ctx, `SELECT set_config('role', $1, true)`, as); err != nil {
			return nil, err
		}
		reached[as] = map[postgres.Server]string{}
		rows, _ := tx.Query(ctx, reachedSQL) // ForEachRow returns its error
		var at postgres.Server
		var success bool
		var result string
		_, err := pgx.ForEachRow(rows, []any{&at.Host, &at.Port, &success, &result}, func() error {
			if success {
				reached[as][at] = result
			} else if from, ok := reached["none"][at]; ok && as != "none" {
				all = append(all, refusedLogin{at, from})
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// CheckLogins refuses if a worker of Citus doesn't let the base role log in from the server of db.
func CheckLogins(ctx context.Context, db beginner, base string) error {
	refused, err := refusedLogins(ctx, db, base)
	if err != nil || len(refused) == 0 {
		return postgres.Wrap(err, "see whether workers let roles log in")
	}
	var rules []string
	for _, r := range refused {
		rules = append(rules, fmt.Sprintf("on %s:\n  %s", r.worker, r.rule(base)))
	}
	return asyncflow.Errorf(asyncflow.CodeUnavailable, "Citus can't log in at its workers as "+
		"the role %s. Add this to pg_hba.conf, before other rules that match, reload, and "+
		"try again:\n%s\nOr keep new tenants on this server by --distributed=off, or do without "+
		"roles: --database-roles=off", base, strings.Join(rules, "\n"))
}

// rule returns the line of pg_hba.conf that lets roles log in.
func (r refusedLogin) rule(base string) string {
	mask := "/32"
	if strings.Contains(r.from, ":") {
		mask = "/128"
	}
	return fmt.Sprintf("host all +%s-logins %s%s trust", base, r.from, mask)
}

// internals are functions of Citus that change its lists of schemas and tables, and don't ask whose
// these are: with them a role that may run SQL takes another tenant's tables from their tenant.
// Citus calls them for who makes and drops schemas, which is our user.
var internals = []string{"add_tenant_schema", "delete_tenant_schema", "delete_placement_metadata",
	"update_none_dist_table_metadata"}

// openInternals returns the internals that every role may call at a server.
func (f *RoleFence) openInternals(ctx context.Context) ([]string, error) {
	rows, _ := f.db.Query(ctx, `SELECT n.nspname || '.' || p.proname || '(' ||
		  pg_get_function_identity_arguments(p.oid) || ')'
		FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace
		WHERE (nspname = 'pg_catalog'
		      AND proname IN (SELECT 'citus_internal_' || unnest($1::text[]))
		    OR nspname = 'citus_internal' AND proname = ANY ($1))
		  AND EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) a
		    WHERE a.grantee = 0) ORDER BY 1`, internals)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return all, postgres.Wrap(err, "look at the functions of Citus")
}

// closeSQL takes internals from every role but our user.
func (f *RoleFence) closeSQL(functions []string) string {
	list := strings.Join(functions, ", ")
	return `REVOKE ALL ON FUNCTION ` + list + ` FROM PUBLIC; GRANT EXECUTE ON FUNCTION ` + list +
		` TO ` + postgres.Quote(f.user)
}

// closeDistributed is closeEverywhere where tenants are on workers of Citus.
func closeDistributed(ctx context.Context, url string) error {
	f, err := OpenRoleFence(ctx, url)
	if err != nil {
		return postgres.ConnectErrorOr(err, url)
	}
	defer f.Close(ctx)
	if !f.logins {
		return nil
	}
	return f.closeEverywhere(ctx, url)
}

// closeEverywhere is closeInternals on all servers of Citus, but for workers that can't be reached:
// what stays open there is a gap.
func (f *RoleFence) closeEverywhere(ctx context.Context, url string) error {
	if err := f.closeInternals(ctx); err != nil {
		return err
	}
	workers, err := workersOf(ctx, f.db)
	for i := 0; i < len(workers) && err == nil; i++ {
		there, unreached := f.fenceAt(ctx, url, workers[i])
		if unreached != nil {
			continue
		}
		err = there.closeInternals(ctx)
		_ = there.conn.Close(context.WithoutCancel(ctx))
	}
	return err
}

// closeInternals runs closeSQL, if our user may: otherwise it is a gap, for a superuser to fill.
func (f *RoleFence) closeInternals(ctx context.Context) error {
	open, err := f.openInternals(ctx)
	if err != nil || len(open) == 0 {
		return err
	}
	_, err = f.db.Exec(ctx, f.closeSQL(open))
	if postgres.State(err) == pgerrcode.InsufficientPrivilege {
		return nil
	}
	return postgres.Wrap(err, "revoke the functions of Citus")
}
