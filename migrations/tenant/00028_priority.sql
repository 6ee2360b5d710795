-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- An operation may also change the priority of tasks.
ALTER TABLE operations DROP CONSTRAINT operations_kind_check,
  ADD CONSTRAINT operations_kind_check CHECK (kind IN ('cancel', 'redrive', 'priority'));

-- +goose Down
DELETE FROM operations WHERE kind = 'priority';
ALTER TABLE operations DROP CONSTRAINT operations_kind_check,
  ADD CONSTRAINT operations_kind_check CHECK (kind IN ('cancel', 'redrive'));
