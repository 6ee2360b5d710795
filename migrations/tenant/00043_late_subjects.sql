-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The sub of the token with which the claimer of a late vote had asked for the task.
ALTER TABLE votes ADD COLUMN subject text;

-- +goose Down
ALTER TABLE votes DROP COLUMN subject;
