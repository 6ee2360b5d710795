-- +goose Up

-- A roll that keeps too many tasks to be compacted is trimmed instead: in small steps its ended
-- tasks are deleted once their retention is over. trim_at is when the next step is due; null: none
-- is planned. This pass has visited all tasks up to (trim_type, trim_id); null: it begins. trimmed:
-- tasks were deleted, and their space is still part of the tables.
ALTER TABLE rolls
  ADD COLUMN trim_at   timestamptz,
  ADD COLUMN trim_type int,
  ADD COLUMN trim_id   bigint,
  ADD COLUMN trimmed   boolean NOT NULL DEFAULT false;

-- The tasks that depend on one that succeeded: it stays as long as one of them is live.
CREATE INDEX edges_succeeded ON edges (on_type, on_id) WHERE status = 'succeeded';
