package schema

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// workerGaps returns what the servers of Citus lack where tenants are on workers: roles that log in
// there, rules of pg_hba.conf that let them, and rights that must be taken away on each server.
// Without roles, these are only functions of Citus that every role may call.
func (f *RoleFence) workerGaps(ctx context.Context, url string, noRoles bool) ([]Gap, error) {
	if !f.logins {
		return nil, nil
	}
	rows, _ := f.db.Query(ctx, `SELECT $1 WHERE NOT $2 UNION ALL SELECT role FROM asyncflow.tenants
		WHERE role IS NOT NULL AND dropping_at IS NULL AND NOT $2 ORDER BY 1`, f.prefix, noRoles)
	roles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, postgres.Wrap(err, "look at the roles of tenants")
	}
	workers, err := workersOf(ctx, f.db)
	if err != nil {
		return nil, err
	}
	all, err := f.loginGaps(ctx, "the coordinator", roles)
	for i := 0; i < len(workers) && err == nil; i++ {
		there, unreached := f.fenceAt(ctx, url, workers[i])
		if unreached != nil {
			gap := newGap("", "%v", unreached)
			gap.Do = "start it, or let this machine and this user connect to it"
			all = append(all, gap)
			continue
		}
		var here []Gap
		here, err = there.gapsAt(ctx, "the worker "+workers[i].String(), roles)
		_ = there.conn.Close(context.WithoutCancel(ctx))
		all = append(all, here...)
	}
	return all, err
}

// gapsAt returns what a worker lacks, of roles that it should have.
func (f *RoleFence) gapsAt(ctx context.Context, server string, roles []string) ([]Gap, error) {
	all, err := f.loginGaps(ctx, server, roles)
	if err != nil || len(roles) == 0 {
		return all, err
	}
	rows, _ := f.db.Query(ctx, openRightsSQL) // ForEachRow returns its error
	var tenant, what string
	_, err = pgx.ForEachRow(rows, []any{&tenant, &what}, func() error {
		all = append(all, newGap(tenant, "on %s, %s", server, what))
		return nil
	})
	return all, postgres.Wrap(err, "look at the rights on %s", server)
}

// openRightsSQL selects tenants with rights on a worker that workerRevokes takes away.
const openRightsSQL = `
SELECT substr(nspname, 8), 'every role may call ' || count(*) || ' functions of the tenant'
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace
WHERE starts_with(nspname, 'tenant_')
  AND EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) a
    WHERE a.grantee = 0)
GROUP BY 1
UNION ALL
SELECT DISTINCT substr(nspname, 8), 'the tenant''s role may change rows of the table audit'
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
WHERE starts_with(nspname, 'tenant_') AND relname ~ '^audit(_[0-9]+)?$' AND relkind = 'r'
  AND EXISTS (SELECT FROM aclexplode(coalesce(relacl, acldefault('r', relowner))) a
    WHERE a.grantee = relowner AND a.privilege_type IN ('UPDATE', 'DELETE', 'TRUNCATE'))
ORDER BY 1, 2`

// loginGaps returns roles that a server lacks or that can't log in there, other servers that don't
// let Citus log in from it, and the gap of openInternals. Without roles it returns only that.
func (f *RoleFence) loginGaps(ctx context.Context, server string, roles []string) ([]Gap, error) {
	all, err := f.internalGaps(ctx, server)
	if err != nil || len(roles) == 0 {
		return all, err
	}
	missing, err := f.missing(ctx, append([]string{f.loginGroup()}, roles...))
	if err != nil {
		return nil, postgres.Wrap(err, "look at the roles on %s", server)
	}
	if len(missing) > 0 {
		all = append(all, newGap("", "%s lacks %d database roles of tenants, or they can't log in "+
			"there, such as %s", server, len(missing), missing[0].name))
		return all, nil
	}
	refused, err := refusedLogins(ctx, f.conn, f.prefix)
	for _, r := range refused {
		gap := newGap("", "the worker %s doesn't let Citus log in as roles of tenants from %s",
			r.worker, server)
		gap.Do = "add to pg_hba.conf of " + r.worker.String() +
			", before other rules that match: " + r.rule(f.prefix)
		all = append(all, gap)
	}
	return all, postgres.Wrap(err, "see whether roles can log in from %s", server)
}

// internalGaps returns the gap of functions of Citus that every role may call at a server.
func (f *RoleFence) internalGaps(ctx context.Context, server string) ([]Gap, error) {
	open, err := f.openInternals(ctx)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	gap := newGap("", "on %s, every role may change Citus' lists of schemas and tables by %d "+
		"functions", server, len(open))
	gap.Do = "there, in this database, as a superuser: " + f.closeSQL(open)
	return []Gap{gap}, nil
}
