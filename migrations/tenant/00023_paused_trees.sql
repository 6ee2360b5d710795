-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Since when no further child of a task begins; null: they do.
ALTER TABLE fan_outs ADD COLUMN paused_at timestamptz, ADD COLUMN pause_reason text;

-- +goose Down
ALTER TABLE fan_outs DROP COLUMN paused_at, DROP COLUMN pause_reason;
