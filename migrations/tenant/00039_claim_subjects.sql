-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The sub of the token with which the claimer asked; null: it has none, or the task is pushed.
ALTER TABLE lease ADD COLUMN subject text;

-- +goose Down
ALTER TABLE lease DROP COLUMN subject;
