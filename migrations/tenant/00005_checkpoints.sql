-- +goose Up

-- What running attempts have left for the next attempt of their stage: one row a task, written with
-- a heartbeat or a progress report while the lease with this seq stands. It counts until the stage
-- is done. The job forget looks at each row at check_at, and deletes it if it no longer counts.
CREATE TABLE checkpoints (
  type       int         NOT NULL,
  id         bigint      NOT NULL,
  seq        smallint    NOT NULL,
  stage      text        NOT NULL,
  written_at timestamptz NOT NULL,
  check_at   timestamptz NOT NULL,
  document   text        NOT NULL,
  PRIMARY KEY (type, id)
) WITH (fillfactor = 70, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
  toast.autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON checkpoints (check_at);
