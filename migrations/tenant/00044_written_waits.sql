-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- batch_max_wait as it was written, such as 1500ms. It counts only while it lasts as long: older
-- nodes change batch_max_wait alone.
ALTER TABLE endpoints ADD COLUMN batch_max_wait_text text;

-- +goose Down
ALTER TABLE endpoints DROP COLUMN batch_max_wait_text;
