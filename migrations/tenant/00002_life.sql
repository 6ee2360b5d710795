-- +goose Up

-- A paused type is not leased from. After a resume its dispatchers ramp up over
-- ramp_seconds from resumed_at on. stage_mapping says where tasks go on that still
-- stand in a stage that was removed.
ALTER TABLE task_types
  ADD COLUMN paused_at     timestamptz,
  ADD COLUMN pause_reason  text,
  ADD COLUMN resumed_at    timestamptz,
  ADD COLUMN ramp_seconds  double precision CHECK (ramp_seconds >= 0),
  ADD COLUMN stage_mapping json;

-- Cancelling or redriving all tasks that a filter finds. position is the number of the
-- last task looked at, next_at when the next step is due, for the sake of the pace.
CREATE TABLE operations (
  id          uuid        PRIMARY KEY,
  kind        text        NOT NULL CHECK (kind IN ('cancel', 'redrive')),
  type        text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  filter      json        NOT NULL,
  options     json        NOT NULL,
  state       text        NOT NULL CHECK (state IN ('running', 'done', 'stopped', 'failed')),
  total       bigint      NOT NULL,
  done        bigint      NOT NULL DEFAULT 0,
  skipped     bigint      NOT NULL DEFAULT 0,
  position    bigint      NOT NULL DEFAULT 0,
  next_at     timestamptz NOT NULL,
  error       text,
  created_at  timestamptz NOT NULL,
  finished_at timestamptz
);
CREATE INDEX ON operations (created_at);

-- What was counted in one transaction, or, once governance has added them up, in a
-- longer time. Inserted and deleted only.
CREATE TABLE tallies (
  type      text        NOT NULL,
  at        timestamptz NOT NULL,
  submitted bigint      NOT NULL DEFAULT 0,
  attempts  bigint      NOT NULL DEFAULT 0,
  failures  bigint      NOT NULL DEFAULT 0,
  succeeded bigint      NOT NULL DEFAULT 0,
  failed    bigint      NOT NULL DEFAULT 0,
  cancelled bigint      NOT NULL DEFAULT 0
);
CREATE INDEX ON tallies (type, at);

-- The tables of the task types there are, and what they have counted so far.
-- +goose StatementBegin
DO $$
DECLARE
  roll record;
  journal regclass;
  old_check name;
BEGIN
  FOR roll IN SELECT type, format('%I', 'task_' || type || '_' || position) AS task,
    format('%I', 'journal_' || type || '_' || position) AS journal, opened_at FROM rolls
  LOOP
    journal := roll.journal::regclass;
    EXECUTE format('INSERT INTO tallies (type, at, submitted, attempts, failures, succeeded, failed, cancelled)
      SELECT $1, $2, (SELECT count(*) FROM %s), j.*, f.* FROM
        (SELECT count(*) FILTER (WHERE outcome IN (''done'', ''failed'', ''rejected'', ''lost'')),
           count(*) FILTER (WHERE outcome IN (''failed'', ''rejected'', ''lost'')) FROM %s) j,
        (SELECT count(*) FILTER (WHERE final = ''succeeded''), count(*) FILTER (WHERE final = ''failed''),
           count(*) FILTER (WHERE final = ''cancelled'')
         FROM (SELECT DISTINCT ON (id) final FROM %s ORDER BY id, seq DESC) l) f', roll.task, journal, journal)
      USING roll.type, roll.opened_at;
    SELECT conname INTO STRICT old_check FROM pg_constraint
    WHERE conrelid = journal AND contype = 'c' AND pg_get_constraintdef(oid) LIKE '%outcome%';
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I, ADD COLUMN options json,
      ADD CHECK (outcome IN (''done'', ''failed'', ''rejected'', ''lost'', ''released'', ''cancelled'', ''redriven'', ''changed'')) NOT VALID',
      journal, old_check);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
  journal regclass;
BEGIN
  FOR journal IN SELECT format('%I', 'journal_' || type || '_' || position)::regclass FROM rolls LOOP
    EXECUTE format('ALTER TABLE %s DROP COLUMN options', journal);
  END LOOP;
END $$;
-- +goose StatementEnd
DROP TABLE tallies;
DROP TABLE operations;
ALTER TABLE task_types DROP COLUMN paused_at, DROP COLUMN pause_reason, DROP COLUMN resumed_at,
  DROP COLUMN ramp_seconds, DROP COLUMN stage_mapping;
