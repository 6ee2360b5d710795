-- +goose Up

-- A token row's since is when its task got to its place, where a head start by priority has
-- made its order_time earlier than that; else null.
-- +goose StatementBegin
DO $$
DECLARE
  token record;
  roll  record;
BEGIN
  FOR token IN
    SELECT type, format('%I', 'ready_' || type || '_' || position) AS rows, 'true' AS due FROM rolls WHERE NOT ready_dropped
    UNION ALL
    SELECT name, format('%I', 'wait_' || name), 'k.until = ''infinity''' FROM task_types
  LOOP
    EXECUTE format('ALTER TABLE %s ADD COLUMN since timestamptz', token.rows);
    FOR roll IN SELECT format('%I', 'task_' || type || '_' || position) AS task,
      format('%I', 'journal_' || type || '_' || position) AS journal FROM rolls WHERE type = token.type
    LOOP
      EXECUTE format('UPDATE %1$s k SET since = p.at FROM (
          SELECT k.ctid AS place, coalesce((SELECT max(j.at) FROM %3$s j WHERE j.id = k.id AND j.seq < k.seq), t.created_at) AS at
          FROM %1$s k JOIN %2$s t ON t.id = k.id WHERE %4$s) p
        WHERE k.ctid = p.place AND p.at >= k.order_time + interval ''1 s''', token.rows, roll.task, roll.journal, token.due);
    END LOOP;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_write writes a task with its first token row, and tells the dispatchers, who hear of
-- it when the transaction is committed. What they are told is rounded down to a second, so
-- that Postgres sends it once for many tasks of a transaction.
CREATE OR REPLACE FUNCTION submit_write(type text, number bigint, now timestamptz, order_time timestamptz, options json,
  context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  roll int := number >> 40;
BEGIN
  EXECUTE format('INSERT INTO %s (id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5)',
    submit_table('task', type, roll)) USING number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_write.type, submit_write.now, 1);
  IF order_time > now + interval '1 minute' THEN
    EXECUTE format('INSERT INTO %s (order_time, id, seq, stage, attempt, reason, until, key) VALUES ($1, $2, 1, $3, 1, ''delay'', $1, $4)',
      submit_table('wait', type)) USING order_time, number, stage, flow_key;
    RETURN;
  END IF;
  EXECUTE format('INSERT INTO %s (order_time, id, seq, stage, attempt, key, since) VALUES ($1, $2, 1, $3, 1, $4, $5)',
    submit_table('ready', type, roll)) USING order_time, number, stage, flow_key,
    CASE WHEN order_time <= now - interval '1 s' THEN now END;
  PERFORM pg_notify('asyncflow_wake', format('sql %s %s %s', substr(current_schema(), length('tenant_') + 1), type,
    floor(extract(epoch FROM order_time))::bigint * 1000000));
END $$;
-- +goose StatementEnd

-- Why the task was held that had been due for longest, when an alert of a backlog began.
ALTER TABLE alert_episodes ADD COLUMN waits_for text;

-- +goose Down
ALTER TABLE alert_episodes DROP COLUMN waits_for;
-- +goose StatementBegin
CREATE OR REPLACE FUNCTION submit_write(type text, number bigint, now timestamptz, order_time timestamptz, options json,
  context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  roll int := number >> 40;
BEGIN
  EXECUTE format('INSERT INTO %s (id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5)',
    submit_table('task', type, roll)) USING number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_write.type, submit_write.now, 1);
  IF order_time > now + interval '1 minute' THEN
    EXECUTE format('INSERT INTO %s (order_time, id, seq, stage, attempt, reason, until, key) VALUES ($1, $2, 1, $3, 1, ''delay'', $1, $4)',
      submit_table('wait', type)) USING order_time, number, stage, flow_key;
    RETURN;
  END IF;
  EXECUTE format('INSERT INTO %s (order_time, id, seq, stage, attempt, key) VALUES ($1, $2, 1, $3, 1, $4)',
    submit_table('ready', type, roll)) USING order_time, number, stage, flow_key;
  PERFORM pg_notify('asyncflow_wake', format('sql %s %s %s', substr(current_schema(), length('tenant_') + 1), type,
    floor(extract(epoch FROM order_time))::bigint * 1000000));
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
DECLARE
  token text;
BEGIN
  FOR token IN SELECT format('%I', 'ready_' || type || '_' || position) FROM rolls WHERE NOT ready_dropped
    UNION ALL SELECT format('%I', 'wait_' || name) FROM task_types
  LOOP
    EXECUTE format('ALTER TABLE %s DROP COLUMN since', token);
  END LOOP;
END $$;
-- +goose StatementEnd
