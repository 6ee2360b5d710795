-- +goose Up

-- +goose StatementBegin
-- history names the history of a table: which cluster it is in, which timeline of that, and which
-- table it is. It is another one after a failover and after a restored backup or dump: what was
-- handed out before may then be unknown here. A part that this Postgres doesn't tell is left out.
CREATE FUNCTION history(relation oid) RETURNS text
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
  EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN NULL;
  END;
  RETURN format('%s.%s.%s', cluster, timeline, relation);
END $$;
-- +goose StatementEnd

-- In which history the last tenant was made, and where the numbers of its tasks begin: at 1, or in
-- another history than the first one far from there. A tenant of that name may have been in the
-- history that was lost.
CREATE TABLE numbering (
  one          boolean PRIMARY KEY DEFAULT true CHECK (one),
  history      text    NOT NULL,
  first_number bigint  NOT NULL CHECK (first_number > 0)
);
INSERT INTO numbering (history, first_number) VALUES (history('numbering'::regclass), 1);

-- +goose Down
DROP TABLE numbering;
DROP FUNCTION history;
