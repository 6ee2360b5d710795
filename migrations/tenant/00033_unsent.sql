-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The lease was made to wait for others on its node, and sending hasn't begun: if it runs out, no
-- attempt was made. Null: sending may have begun.
ALTER TABLE lease ADD COLUMN unsent boolean;

-- +goose Down
ALTER TABLE lease DROP COLUMN unsent;
