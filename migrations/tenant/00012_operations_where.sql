-- +goose Up
-- +goose StatementBegin

-- Operations with filters that nodes of the version before don't know have kinds of their own: these
-- nodes leave an operation of an unknown kind alone, instead of visiting more tasks than are asked for.
ALTER TABLE operations DROP CONSTRAINT operations_kind_check,
  ADD CONSTRAINT operations_kind_check CHECK (kind IN ('cancel', 'redrive', 'priority', 'count',
    'cancel_where', 'redrive_where', 'priority_where', 'count_where'));

-- +goose StatementEnd
