-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- +goose StatementBegin
-- submit_write writes a task with its first token row, and tells the dispatchers, who hear of
-- it when the transaction is committed. What they are told is rounded down to a second, so
-- that Postgres sends it once for many tasks of a transaction; and it is numbers, as every role can
-- listen.
CREATE OR REPLACE FUNCTION submit_write(table_set text, type_number int, type text, number bigint, now timestamptz,
  order_time timestamptz, options json, context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  roll int := number >> 40;
BEGIN
  EXECUTE format('INSERT INTO %s (type, id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5, $6)',
    submit_table('task', table_set, roll)) USING type_number, number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_write.type, submit_write.now, 1);
  IF order_time > now + interval '1 minute' THEN
    INSERT INTO wait (type, order_time, id, seq, stage, attempt, reason, until, key)
    VALUES (type_number, submit_write.order_time, number, 1, submit_write.stage, 1, 'delay',
      submit_write.order_time, flow_key);
    RETURN;
  END IF;
  EXECUTE format('INSERT INTO %s (type, order_time, id, seq, stage, attempt, key, since) VALUES ($1, $2, $3, 1, $4, 1, $5, $6)',
    submit_table('ready', table_set, roll)) USING type_number, order_time, number, stage, flow_key,
    CASE WHEN order_time <= now - interval '1 s' THEN now END;
  PERFORM pg_notify('asyncflow_wake', format('0 %s %s %s', to_regnamespace(quote_ident(current_schema()))::oid, type_number,
    floor(extract(epoch FROM order_time))::bigint * 1000000));
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_wait is submit_write for a task that waits for others: a node looks at its edges.
CREATE OR REPLACE FUNCTION submit_wait(table_set text, type_number int, type text, number bigint, now timestamptz,
  order_time timestamptz, options json, context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO %s (type, id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5, $6)',
    submit_table('task', table_set, (number >> 40)::int)) USING type_number, number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_wait.type, submit_wait.now, 1);
  INSERT INTO wait (type, order_time, id, seq, stage, attempt, reason, until, key, since)
  VALUES (type_number, submit_wait.order_time, number, 1, submit_wait.stage, 1, 'dependencies', '9999-01-01 00:00:00+00',
    flow_key, CASE WHEN submit_wait.order_time <= submit_wait.now - interval '1 s' THEN submit_wait.now END);
  INSERT INTO outbox (kind, due, type, id) VALUES ('submitted', submit_wait.now, type_number, number);
  PERFORM pg_notify('asyncflow_wake', format('0 %s', to_regnamespace(quote_ident(current_schema()))::oid));
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION submit_write(table_set text, type_number int, type text, number bigint, now timestamptz,
  order_time timestamptz, options json, context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  roll int := number >> 40;
BEGIN
  EXECUTE format('INSERT INTO %s (type, id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5, $6)',
    submit_table('task', table_set, roll)) USING type_number, number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_write.type, submit_write.now, 1);
  IF order_time > now + interval '1 minute' THEN
    INSERT INTO wait (type, order_time, id, seq, stage, attempt, reason, until, key)
    VALUES (type_number, submit_write.order_time, number, 1, submit_write.stage, 1, 'delay',
      submit_write.order_time, flow_key);
    RETURN;
  END IF;
  EXECUTE format('INSERT INTO %s (type, order_time, id, seq, stage, attempt, key, since) VALUES ($1, $2, $3, 1, $4, 1, $5, $6)',
    submit_table('ready', table_set, roll)) USING type_number, order_time, number, stage, flow_key,
    CASE WHEN order_time <= now - interval '1 s' THEN now END;
  PERFORM pg_notify('asyncflow_wake', format('sql %s %s %s', substr(current_schema(), length('tenant_') + 1), type,
    floor(extract(epoch FROM order_time))::bigint * 1000000));
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION submit_wait(table_set text, type_number int, type text, number bigint, now timestamptz,
  order_time timestamptz, options json, context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO %s (type, id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5, $6)',
    submit_table('task', table_set, (number >> 40)::int)) USING type_number, number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_wait.type, submit_wait.now, 1);
  INSERT INTO wait (type, order_time, id, seq, stage, attempt, reason, until, key, since)
  VALUES (type_number, submit_wait.order_time, number, 1, submit_wait.stage, 1, 'dependencies', '9999-01-01 00:00:00+00',
    flow_key, CASE WHEN submit_wait.order_time <= submit_wait.now - interval '1 s' THEN submit_wait.now END);
  INSERT INTO outbox (kind, due, type, id) VALUES ('submitted', submit_wait.now, type_number, number);
  PERFORM pg_notify('asyncflow_wake', 'sql ' || substr(current_schema(), length('tenant_') + 1));
END $$;
-- +goose StatementEnd
