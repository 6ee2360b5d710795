-- +goose Up

-- history as before, but a hot standby, which doesn't tell its timeline, is no error.
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION history(relation oid) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  cluster  text := '';
  timeline text := '';
BEGIN
  BEGIN
    SELECT system_identifier::text INTO cluster FROM pg_control_system();
  EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN NULL;
  END;
  BEGIN
    timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported
    OR object_not_in_prerequisite_state THEN NULL;
  END;
  RETURN format('%s.%s.%s', cluster, timeline, relation);
END $$;
-- +goose StatementEnd

-- Which role of which cluster each of submitters is, by its name: "cluster.oid". A role that was
-- made anew under that name is another one, and in another cluster nobody can tell.
ALTER TABLE tenants ADD COLUMN submitter_ids jsonb NOT NULL DEFAULT '{}';

-- Who has the right is the one that was meant.
UPDATE tenants t SET submitter_ids = g.ids
FROM (SELECT n.nspname, jsonb_object_agg(r.rolname,
    split_part(history(0), '.', 1) || '.' || r.oid) AS ids
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace, aclexplode(p.proacl) a
    JOIN pg_roles r ON r.oid = a.grantee
  WHERE p.proname = 'submit_task' AND a.privilege_type = 'EXECUTE' AND r.oid <> p.proowner
  GROUP BY n.nspname) g
WHERE g.nspname = 'tenant_' || t.slug AND t.submitters <> '{}';
