-- +goose Up

-- An erasure asks whether the end of a task is still to be told.
CREATE INDEX outbox_final ON outbox (type, id) WHERE kind = 'final';
