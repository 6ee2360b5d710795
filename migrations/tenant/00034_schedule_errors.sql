-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Why the task of a schedule's due tick can't be submitted, and since when.
ALTER TABLE schedules
  ADD COLUMN last_error text NOT NULL DEFAULT '',
  ADD COLUMN failed_at  timestamptz;

-- +goose Down
ALTER TABLE schedules DROP COLUMN last_error, DROP COLUMN failed_at;
