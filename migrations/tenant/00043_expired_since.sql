-- +goose Up

-- Since when failed tasks that expire are counted in expired_tallies. A redrive of a task that expired
-- before takes nothing off.
CREATE TABLE expired_since (
  at timestamptz NOT NULL
);
INSERT INTO expired_since
SELECT coalesce(max(tstamp)::timestamptz, now()) FROM schema_versions WHERE version_id = 38;
