package schema

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// lostRightsSQL selects the statements that bring back what a restore has lost: the rights of the
// roles that may submit by SQL, that nobody else may call a tenant's functions, and that nobody
// changes the audit. They are for the tenant $1, for no tenant if that is "", or for all if it is
// NULL.
const lostRightsSQL = `
WITH tenant AS (
  SELECT slug, submitters, n.oid AS schema, nspowner, nspacl
  FROM asyncflow.tenants JOIN pg_namespace n ON nspname = 'tenant_' || slug
  WHERE dropping_at IS NULL AND coalesce(slug = $1::text, true)
), audit AS (
  SELECT slug, c.* FROM tenant JOIN pg_class c ON relnamespace = schema AND relname = 'audit'
  UNION ALL SELECT '', c.* FROM pg_class c
  WHERE c.oid = 'asyncflow.audit'::regclass AND coalesce($1 = '', true)
), submitter AS (
  SELECT slug, t.schema, nspowner, nspacl, r.oid, r.rolname
  FROM tenant t, unnest(submitters) AS s (name) JOIN pg_roles r ON r.rolname = s.name
)
SELECT slug, 'REVOKE ALL ON FUNCTION ' || p.oid::regprocedure || ' FROM PUBLIC' AS statement
FROM tenant JOIN pg_proc p ON pronamespace = schema
WHERE EXISTS (SELECT FROM aclexplode(coalesce(proacl, acldefault('f', proowner))) a
  WHERE a.grantee = 0)
UNION ALL
SELECT slug, format('REVOKE UPDATE, TRUNCATE ON %s FROM %s', oid::regclass, relowner::regrole)
FROM audit
WHERE EXISTS (SELECT FROM aclexplode(coalesce(relacl, acldefault('r', relowner))) a
  WHERE a.grantee = relowner AND a.privilege_type IN ('UPDATE', 'TRUNCATE'))
UNION ALL
SELECT slug, format('GRANT USAGE ON SCHEMA %s TO %I', schema::regnamespace, rolname)
FROM submitter s
WHERE NOT EXISTS (SELECT FROM aclexplode(nspacl) a
  WHERE a.grantee = s.oid AND a.privilege_type = 'USAGE')
UNION ALL
SELECT slug, format('GRANT EXECUTE ON FUNCTION %s TO %I', p.oid::regprocedure, rolname)
FROM submitter s JOIN pg_proc p ON pronamespace = schema
WHERE proname IN ('submit_task', 'send_signal')
  AND NOT EXISTS (SELECT FROM aclexplode(proacl) a
    WHERE a.grantee = s.oid AND a.privilege_type = 'EXECUTE')
ORDER BY 1, 2 DESC`

// restoreRights brings back what a restore has lost of the rights in a tenant's schema, or for ""
// in the schema asyncflow. owner is the role that owns it, or "" for the user of the connection.
// Submitters that don't exist are left out: see Gaps.
func restoreRights(ctx context.Context, db querier, tenant, owner string) error {
	rows, _ := db.Query(ctx, lostRightsSQL, tenant) // CollectRows returns its error
	statements, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (sql string, err error) {
		return sql, row.Scan(&tenant, &sql)
	})
	if err == nil && len(statements) > 0 {
		begin := `BEGIN; `
		if owner != "" {
			begin += `SET LOCAL ROLE ` + postgres.Quote(owner) + `; `
		}
		_, err = db.Exec(ctx, begin+strings.Join(statements, "; ")+`; COMMIT`)
	}
	return postgres.Wrap(err, "restore the rights in the schema of %q", tenant)
}
