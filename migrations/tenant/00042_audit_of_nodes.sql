-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What background jobs correct by themselves is in the audit, too.
ALTER TABLE audit DROP CONSTRAINT audit_origin_check,
  ADD CONSTRAINT audit_origin_check CHECK (origin IN ('api', 'cli', 'node'));

-- +goose Down
ALTER TABLE audit DROP CONSTRAINT audit_origin_check,
  ADD CONSTRAINT audit_origin_check CHECK (origin IN ('api', 'cli')) NOT VALID;
