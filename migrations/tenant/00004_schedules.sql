-- +goose Up

-- Schedules: what submits a task at each of its ticks. spec is the document that was
-- applied, without the context of its tasks. next_at is the first tick that hasn't been
-- dealt with, null when there is none. last_at and last_id are of the last tick that had
-- a task, skipped_at of the last one of the skipped that had none, as the task before
-- was not final.
CREATE TABLE schedules (
  name       text        PRIMARY KEY,
  type       text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  spec       json        NOT NULL,
  context    json        NOT NULL,
  version    int         NOT NULL,
  next_at    timestamptz,
  paused_at  timestamptz,
  last_at    timestamptz,
  last_id    bigint,
  skipped    bigint      NOT NULL DEFAULT 0,
  skipped_at timestamptz,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL
);
CREATE INDEX ON schedules (next_at) WHERE paused_at IS NULL;
CREATE INDEX ON schedules (type);

-- +goose Down
DROP TABLE schedules;
