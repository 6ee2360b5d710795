-- +goose Up
-- +goose StatementBegin

-- Operations that erase tasks. A node leaves operations alone of kinds that it doesn't know, so that
-- the table need not know them either.
ALTER TABLE operations DROP CONSTRAINT operations_kind_check,
  ADD CONSTRAINT operations_kind_check CHECK (kind ~ '^[a-z_]{1,40}$');

-- +goose StatementEnd
