-- +goose Up

-- How long tasks waited and took, added up by minute and kept for an hour: from when they were due
-- until they were started in a stage, and, with the stage '', from their submit to their end, in
-- the buckets of asyncflow.Latencies without the zeros at the end. late_votes are votes that came
-- after the decision. closed_windows are calls that got no task while the window of their claimer
-- was used up. Nodes of the version before count nothing here.
CREATE TABLE type_minutes (
  type           text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  stage          text        NOT NULL,
  at             timestamptz NOT NULL,
  latencies      int[]       NOT NULL,
  late_votes     bigint      NOT NULL,
  closed_windows bigint      NOT NULL,
  PRIMARY KEY (type, stage, at)
) WITH (fillfactor = 50);
CREATE INDEX ON type_minutes (at);
