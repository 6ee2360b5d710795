-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The children that have failed, and that their parents don't count yet: no sibling may begin once
-- too many have.
CREATE INDEX outbox_failed ON outbox (type, id, fan_out)
  WHERE kind = 'children' AND failed + cancelled > 0;

-- +goose Down
DROP INDEX outbox_failed;
