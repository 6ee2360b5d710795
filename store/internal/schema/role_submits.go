package schema

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// SubmitterIDSQL names the role $2 for asyncflow.tenants.submitter_ids: which one of which cluster
// it is. A role that is made anew under the same name has another oid, and in a copy of the
// database that was restored elsewhere, the cluster is another one. Where Postgres doesn't tell the
// cluster, no role is known again.
const SubmitterIDSQL = `(SELECT split_part(asyncflow.history(0), '.', 1) || '.' || r.oid
  FROM pg_roles r WHERE r.rolname = $2::text)`

// submitFunctions is a condition on names p of functions that submitters may call. The numbered
// ones are of before a migration, which has kept them for views that depend on them.
const submitFunctions = `(p.proname IN ('submit_task', 'send_signal')
    OR p.proname ~ '^submit_task_[0-9]+$')`

// tenantsSQL begins a query about the rights of roles that submit by SQL: tenant has the tenant $1,
// no tenant if that is "", or all if it is NULL; routine their functions; namesake the roles that
// have the names of submitters, and whether each is known to be the one that was meant. What is in
// a schema is found by what depends on it: pg_proc has no index for it.
const tenantsSQL = `
WITH tenant AS (
  SELECT slug, submitters, submitter_ids, n.oid AS schema, nspowner, nspacl
  FROM asyncflow.tenants JOIN pg_namespace n ON nspname = 'tenant_' || slug
  WHERE dropping_at IS NULL AND coalesce(slug = $1::text, true)
), routine AS (
  SELECT slug, p.oid, proacl, proowner, ` + submitFunctions + ` AS submits
  FROM tenant JOIN pg_depend d ON d.refclassid = 'pg_namespace'::regclass AND d.refobjid = schema
    AND d.classid = 'pg_proc'::regclass
  JOIN pg_proc p ON p.oid = d.objid
), cluster AS MATERIALIZED (
  SELECT split_part(asyncflow.history(0), '.', 1) AS id
), namesake AS (
  SELECT slug, t.schema, nspacl, r.oid, r.rolname,
    cluster.id <> '' AND coalesce(submitter_ids ->> s.name = cluster.id || '.' || r.oid, false)
      AS known
  FROM cluster, tenant t, unnest(submitters) AS s (name) JOIN pg_roles r ON r.rolname = s.name
), lacked AS (
  SELECT slug, known, rolname,
    format('GRANT USAGE ON SCHEMA %s TO %I', schema::regnamespace, rolname) AS statement
  FROM namesake s
  WHERE NOT EXISTS (SELECT FROM aclexplode(nspacl) a
    WHERE a.grantee = s.oid AND a.privilege_type = 'USAGE')
  UNION ALL
  SELECT slug, known, rolname, format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure,
    rolname)
  FROM namesake s JOIN routine p USING (slug)
  WHERE p.submits AND NOT EXISTS (SELECT FROM aclexplode(proacl) a
    WHERE a.grantee = s.oid AND a.privilege_type = 'EXECUTE')
)`

// lostRightsSQL selects the statements that bring back what a restore has lost: the rights of the
// roles that may submit by SQL, that nobody else may call a tenant's functions, and that nobody
// changes the audit.
const lostRightsSQL = tenantsSQL + `, audit AS (
  SELECT slug, c.* FROM tenant JOIN pg_class c ON relnamespace = schema AND relname = 'audit'
  UNION ALL SELECT '', c.* FROM pg_class c
  WHERE c.oid = 'asyncflow.audit'::regclass AND coalesce($1 = '', true)
)
SELECT slug, 'REVOKE ALL ON ROUTINE ' || p.oid::regprocedure || ' FROM PUBLIC' AS statement
FROM routine p
WHERE EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) a
  WHERE a.grantee = 0)
UNION ALL
SELECT slug, format('REVOKE UPDATE, TRUNCATE ON %s FROM %s', oid::regclass, relowner::regrole)
FROM audit
WHERE EXISTS (SELECT FROM aclexplode(coalesce(relacl, acldefault('r', relowner))) a
  WHERE a.grantee = relowner AND a.privilege_type IN ('UPDATE', 'TRUNCATE'))
UNION ALL
SELECT slug, statement FROM lacked WHERE known
ORDER BY 1, 2 DESC`

// RestoreRights brings back what a restore has lost of the rights in a tenant's schema, or for ""
// in the schema asyncflow, and returns the statements. owner is the role that owns it, or "" for
// the user of the connection. Submitters that don't exist, or may be others of that name, are left
// out: see Gaps.
func RestoreRights(ctx context.Context, db querier, tenant, owner string) ([]string, error) {
	rows, _ := db.Query(ctx, lostRightsSQL, tenant) // CollectRows returns its error
	statements, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (sql string, err error) {
		return sql, row.Scan(&tenant, &sql)
	})
	if err == nil && len(statements) > 0 {
		// Sent together, they are one transaction, or a part of the one that is open.
		all := strings.Join(statements, "; ")
		if owner != "" {
			all = `SET LOCAL ROLE ` + postgres.Quote(owner) + `; ` + all + `; ` + asUser
		}
		_, err = db.Exec(ctx, all)
	}
	if postgres.RolledBack(err) { // otherwise they may stand
		statements = nil
	}
	return statements, postgres.Wrap(err, "restore the rights in the schema of %q", tenant)
}
