-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The tasks of a flow key that wait for their children are counted.
CREATE INDEX ON wait (type, key, reason) WHERE key IS NOT NULL AND reason <> 'flow_key';
DROP INDEX wait_type_key_idx;

-- +goose Down
CREATE INDEX ON wait (type, key) WHERE key IS NOT NULL AND reason <> 'flow_key';
DROP INDEX wait_type_key_reason_idx;
