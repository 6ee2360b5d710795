-- +goose Up

-- Tasks that have a lifetime and are not final, each with the time at which the job expire looks at
-- it. start says that this is the end of the time to begin, and counts only while no attempt has
-- begun after the row start of the journal; null: it is the end of the task.
CREATE TABLE lifetimes (
  type       int         NOT NULL,
  id         bigint      NOT NULL,
  expires_at timestamptz NOT NULL,
  start      smallint,
  PRIMARY KEY (type, id)
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);
CREATE INDEX ON lifetimes (type, expires_at);
