-- +goose Up

-- sealed_at: no row is added to the roll's task and ready tables from then on.
-- drained_at: its ready table was empty, and begin_pos moved on; ready_dropped: that
-- table is gone.
ALTER TABLE rolls
  ADD COLUMN sealed_at     timestamptz,
  ADD COLUMN drained_at    timestamptz,
  ADD COLUMN ready_dropped boolean NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE rolls DROP COLUMN sealed_at, DROP COLUMN drained_at, DROP COLUMN ready_dropped;
