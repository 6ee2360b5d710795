-- +goose Up

-- How an endpoint is doing, if it isn't simply well, and what it may have at once.
CREATE TABLE endpoint_health (
  endpoint uuid        PRIMARY KEY REFERENCES endpoints (id) ON DELETE CASCADE,
  state    text        NOT NULL CHECK (state IN ('closed', 'open', 'disabled')),
  since    timestamptz NOT NULL,
  until    timestamptz,
  pause    interval    NOT NULL,
  reason   text        NOT NULL
);
ALTER TABLE endpoints
  ADD COLUMN max_in_flight int CHECK (max_in_flight > 0),
  ADD COLUMN rate          text;

-- The tasks that have failed for good and keep the others of their flow key waiting.
CREATE TABLE flow_blocks (
  type text   NOT NULL,
  key  text   NOT NULL,
  id   bigint NOT NULL,
  PRIMARY KEY (type, key, id)
);

-- The token tables of the task types there are have the flow key of a task, if it
-- matters, and a lease the endpoint that it counts for.
-- +goose StatementBegin
DO $$
DECLARE
  t record;
  old_check name;
BEGIN
  FOR t IN SELECT format('%I', 'lease_' || name) AS lease, format('%I', 'wait_' || name) AS wait FROM task_types LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN key text, ADD COLUMN endpoint uuid', t.lease);
    EXECUTE format('CREATE INDEX ON %s (key) WHERE key IS NOT NULL', t.lease);
    SELECT conname INTO STRICT old_check FROM pg_constraint
    WHERE conrelid = t.wait::regclass AND contype = 'c' AND pg_get_constraintdef(oid) LIKE '%reason%';
    EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I,
      ADD CHECK (reason IN (''delay'', ''retry'', ''endpoint'', ''flow_key'', ''endpoint_limit'', ''endpoint_unhealthy''))', t.wait, old_check);
    EXECUTE format('CREATE INDEX ON %s (key, order_time, id) WHERE reason = ''flow_key''', t.wait);
    EXECUTE format('CREATE INDEX ON %s (key) WHERE key IS NOT NULL AND reason <> ''flow_key''', t.wait);
    EXECUTE format('CREATE INDEX ON %s (stage, order_time, id) WHERE until = ''infinity'' AND reason <> ''flow_key''', t.wait);
  END LOOP;
  FOR t IN SELECT format('%I', 'ready_' || type || '_' || position) AS ready FROM rolls WHERE NOT ready_dropped LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN key text', t.ready);
    EXECUTE format('CREATE INDEX ON %s (key, order_time, id) WHERE key IS NOT NULL', t.ready);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
  t record;
BEGIN
  FOR t IN SELECT format('%I', 'lease_' || name) AS lease, format('%I', 'wait_' || name) AS wait FROM task_types LOOP
    EXECUTE format('ALTER TABLE %s DROP COLUMN key, DROP COLUMN endpoint', t.lease);
    EXECUTE format('UPDATE %s SET key = NULL, reason = ''delay'', until = order_time WHERE reason IN (''flow_key'', ''endpoint_limit'', ''endpoint_unhealthy'')', t.wait);
  END LOOP;
  FOR t IN SELECT format('%I', 'ready_' || type || '_' || position) AS ready FROM rolls WHERE NOT ready_dropped LOOP
    EXECUTE format('ALTER TABLE %s DROP COLUMN key', t.ready);
  END LOOP;
END $$;
-- +goose StatementEnd
DROP TABLE flow_blocks;
ALTER TABLE endpoints DROP COLUMN max_in_flight, DROP COLUMN rate;
DROP TABLE endpoint_health;
