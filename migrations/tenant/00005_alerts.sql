-- +goose Up

-- Where a tenant's alerts go, and when: one row at most. The endpoint is of the task type
-- asyncflow-alerts. evaluated_at is when a node last took its turn at the rules.
CREATE TABLE alerts (
  endpoint     uuid        PRIMARY KEY REFERENCES endpoints (id) ON DELETE CASCADE,
  rules        json        NOT NULL,
  evaluated_at timestamptz NOT NULL DEFAULT '-infinity',
  updated_at   timestamptz NOT NULL
);
CREATE UNIQUE INDEX ON alerts ((true));

-- The time from when something got over its limit until it was back for a minute; below
-- is since when it has been back. firing_task and resolved_task are the tasks that told.
CREATE TABLE alert_episodes (
  id             uuid             PRIMARY KEY,
  endpoint       uuid             NOT NULL REFERENCES alerts (endpoint) ON DELETE CASCADE,
  alert          text             NOT NULL,
  subject        text             NOT NULL,
  since          timestamptz      NOT NULL,
  value          double precision NOT NULL,
  bound          double precision NOT NULL,
  below          timestamptz,
  resolved_at    timestamptz,
  resolved_value double precision,
  firing_task    text,
  resolved_task  text
);
CREATE UNIQUE INDEX ON alert_episodes (alert, subject) WHERE resolved_at IS NULL;

-- +goose Down
DROP TABLE alert_episodes;
DROP TABLE alerts;
