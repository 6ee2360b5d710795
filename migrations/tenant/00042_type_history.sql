-- +goose Up

-- What the tasks of a type did, by minute for a day and by hour for 30 days. A row has the minutes
-- of an hour, or, with hourly, the hours of a day, packed in points: see package history. stage ''
-- has what counts for the whole type. type null: all types of the tenant together, also deleted
-- ones. Nodes of the version before write nothing here.
CREATE TABLE type_history (
  type   text        REFERENCES task_types (name) ON DELETE CASCADE,
  stage  text        NOT NULL,
  hourly boolean     NOT NULL,
  at     timestamptz NOT NULL,
  points bytea       NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX ON type_history (coalesce(type, ''), hourly, at, stage);
CREATE INDEX ON type_history (hourly, at);
CREATE INDEX ON type_history (type);
