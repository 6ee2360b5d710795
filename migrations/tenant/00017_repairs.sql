-- +goose Up

-- Operations that change the time of tasks, or run final ones again as new tasks. Nodes of the
-- version before leave operations of an unknown kind alone.
ALTER TABLE operations DROP CONSTRAINT operations_kind_check,
  ADD CONSTRAINT operations_kind_check CHECK (kind IN ('cancel', 'redrive', 'priority', 'count',
    'cancel_where', 'redrive_where', 'priority_where', 'count_where', 'delay', 'rerun'));
