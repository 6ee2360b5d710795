-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The tasks that wait for their children are looked at now and then.
CREATE INDEX ON fan_outs (type, id, seq) WHERE NOT closed;

-- +goose Down
DROP INDEX fan_outs_type_id_seq_idx;
