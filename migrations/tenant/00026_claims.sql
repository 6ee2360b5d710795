-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Who has asked for the task; null: it is pushed.
ALTER TABLE lease ADD COLUMN claimer text;
CREATE INDEX ON lease (type, claimer) WHERE claimer IS NOT NULL;

-- +goose Down
ALTER TABLE lease DROP COLUMN claimer;
