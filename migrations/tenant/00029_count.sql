-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- An operation may also count tasks.
ALTER TABLE operations DROP CONSTRAINT operations_kind_check,
  ADD CONSTRAINT operations_kind_check CHECK (kind IN ('cancel', 'redrive', 'priority', 'count'));

-- +goose Down
DELETE FROM operations WHERE kind = 'count';
ALTER TABLE operations DROP CONSTRAINT operations_kind_check,
  ADD CONSTRAINT operations_kind_check CHECK (kind IN ('cancel', 'redrive', 'priority'));
