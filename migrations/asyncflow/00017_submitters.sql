-- +goose Up

-- The roles of the database that an operator lets submit tasks of the tenant by SQL. A dump of the
-- database has no roles, so a restore loses their grants: each migration gives them back.
ALTER TABLE tenants ADD COLUMN submitters text[] NOT NULL DEFAULT '{}';

-- Grants of before that were made by hand can't be told from the other ones. Who may not use the
-- schema was shut out.
UPDATE tenants t SET submitters = g.roles
FROM (SELECT nspname, array_agg(DISTINCT r.rolname::text) AS roles
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, aclexplode(p.proacl) a
    JOIN pg_roles r ON r.oid = a.grantee
  WHERE p.proname = 'submit_task' AND a.privilege_type = 'EXECUTE' AND r.oid <> p.proowner
    AND has_schema_privilege(r.oid, n.oid, 'USAGE')
  GROUP BY nspname) g
WHERE g.nspname = 'tenant_' || t.slug;
