-- +goose Up

-- submit_task is called by roles that may do nothing else here. It finds its names in this
-- schema alone, and so do the functions that it calls: a temporary table of the caller's must
-- not take the place of one of ours.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- What the nodes hold submits against, for those that come by SQL: one row, which nodes
-- write when they start and when something changes. refusal is why none is taken, null when they
-- are; a quota of 0 is none.
CREATE TABLE submit_limits (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  refusal       text,
  context_bytes bigint  NOT NULL CHECK (context_bytes > 0),
  pending_tasks bigint  NOT NULL CHECK (pending_tasks >= 0)
);
INSERT INTO submit_limits (context_bytes, pending_tasks) VALUES (262144, 0);

-- Numbers of tasks that are submitted by SQL. Those of a roll's row would keep it locked until
-- the caller's transaction ends. They are the upper half of a roll's numbers.
CREATE SEQUENCE submit_numbers MAXVALUE 549755813887 CYCLE; -- 2^39 - 1

-- +goose StatementBegin
-- submit_table returns the name of a table of a task type. It is qualified, as it may not be
-- there: a temporary table of that name must not be taken for it.
CREATE FUNCTION submit_table(kind text, type text, roll int DEFAULT NULL) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format('%I.%I', current_schema(), concat_ws('_', kind, type, roll))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_refuse says no: code is the API's, and field, if there is one, the argument at fault.
CREATE FUNCTION submit_refuse(code text, message text, field text DEFAULT '') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING MESSAGE = message, DETAIL = code, COLUMN = field, ERRCODE = CASE code
    WHEN 'invalid_argument' THEN 'invalid_parameter_value'
    WHEN 'too_large'        THEN 'program_limit_exceeded'
    WHEN 'not_found'        THEN 'undefined_object'
    WHEN 'key_reused'       THEN 'unique_violation'
    WHEN 'quota_exceeded'   THEN 'configuration_limit_exceeded'
    WHEN 'tenant_suspended' THEN 'object_not_in_prerequisite_state'
    WHEN 'conflict'         THEN 'serialization_failure'
  END;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_duration writes a time as the API does: 4320h0m0s.
CREATE FUNCTION submit_duration(seconds numeric) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN seconds < 0 THEN '-' ELSE '' END
    || CASE WHEN s >= 3600 THEN div(s, 3600) || 'h' ELSE '' END
    || CASE WHEN s >= 60 THEN mod(div(s, 60), 60) || 'm' ELSE '' END
    || trim_scale(mod(s, 60)) || 's'
  FROM (SELECT abs(seconds) AS s) a
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_depth tells how deep a JSON document is nested, or 0 if it has so few brackets that
-- it doesn't matter.
CREATE FUNCTION submit_depth(doc text, most int) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF length(doc) - length(translate(doc, '[{', '')) <= most THEN
    RETURN 0;
  END IF;
  doc := regexp_replace(doc, '"(?:[^"\\]|\\.)*"', '', 'g');
  doc := regexp_replace(doc, '[^][{}]+', '', 'g');
  RETURN (SELECT max(d) FROM (SELECT sum(CASE WHEN c IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY i) AS d
    FROM unnest(string_to_array(doc, NULL)) WITH ORDINALITY AS u (c, i)) depths);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_check refuses what the API would refuse, in its words.
CREATE FUNCTION submit_check(type text, context json, key text, priority int, run_at timestamptz, flow_key text,
  key_window interval, context_limit bigint, now timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  size     bigint := octet_length(convert_to(context::text, 'UTF8'));
  seconds  numeric := extract(epoch FROM key_window);
  fields   text[] := '{}';
  problems text[] := '{}';
  problem  text;
BEGIN
  problem := CASE
    WHEN coalesce(type, '') = '' THEN 'is required'
    WHEN octet_length(type) > 40 THEN format('is %s characters long; the limit is 40', octet_length(type))
    WHEN type COLLATE "C" !~ '^[a-z]' THEN 'must start with a lower-case letter'
    WHEN type COLLATE "C" !~ '^[a-z0-9_-]+$' THEN 'may hold lower-case letters, digits, - and _ only'
  END;
  fields := fields || 'type'::text; problems := problems || problem;

  problem := CASE
    WHEN context IS NULL THEN 'is required'
    WHEN size > context_limit THEN format('is %s bytes; the limit is %s', size, context_limit)
    WHEN submit_depth(context::text, 128) > 128 THEN 'is nested more than 128 deep'
  END;
  fields := fields || 'context'::text; problems := problems || problem;

  problem := CASE WHEN priority NOT BETWEEN 0 AND 31536000
    THEN format('is %s; it must be 0 to 31536000 seconds (a year)', priority) END;
  fields := fields || 'priority'::text; problems := problems || problem;

  problem := CASE WHEN octet_length(key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(key)) END;
  fields := fields || 'key'::text; problems := problems || problem;

  problem := CASE
    WHEN octet_length(key) > 255 THEN NULL
    WHEN seconds <> 0 AND coalesce(key, '') = '' THEN 'needs a key'
    WHEN seconds NOT BETWEEN 0 AND 15552000 THEN format('is %s; it must be up to 4320h0m0s (180 days)', submit_duration(seconds))
  END;
  fields := fields || 'key_window'::text; problems := problems || problem;

  problem := CASE WHEN octet_length(flow_key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(flow_key)) END;
  fields := fields || 'flow_key'::text; problems := problems || problem;

  problem := CASE WHEN run_at > now + interval '365 days' THEN 'is more than 8760h0m0s (a year) ahead' END;
  fields := fields || 'run_at'::text; problems := problems || problem;

  PERFORM submit_refuse(CASE WHEN size > context_limit THEN 'too_large' ELSE 'invalid_argument' END,
    string_agg(field || ' ' || what, '; ' ORDER BY i), (array_agg(field ORDER BY i))[1])
  FROM unnest(fields, problems) WITH ORDINALITY AS p (field, what, i) WHERE what IS NOT NULL HAVING count(*) > 0;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_roll returns the position of the type's open roll, and keeps it from being sealed
-- until the transaction ends; null when its tables are gone. What there is is looked up by
-- name, as a snapshot may be older than the roll: a roll is sealed after the next one was made,
-- and never while we hold it.
CREATE FUNCTION submit_roll(type text, roll int) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    WHILE to_regclass(submit_table('task', type, roll + 1)) IS NOT NULL LOOP
      roll := roll + 1;
    END LOOP;
    BEGIN
      EXECUTE format('LOCK TABLE %s, %s IN ROW EXCLUSIVE MODE', submit_table('task', type, roll), submit_table('ready', type, roll));
    EXCEPTION WHEN undefined_table THEN
      RETURN NULL;
    END;
    IF to_regclass(submit_table('task', type, roll + 1)) IS NULL THEN
      RETURN roll;
    END IF;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_claim has a key stand for a task, and returns the task that it stands for: this
-- one, or an earlier one, which must have the same context. It waits for other transactions
-- that have the key.
CREATE FUNCTION submit_claim(type text, key text, number bigint, context json, expires timestamptz, now timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  digest bytea := sha256(convert_to(context::text, 'UTF8'));
  held   record;
BEGIN
  LOOP
    INSERT INTO idempotency_keys AS k (type, key, id, hash, expires_at)
    VALUES (submit_claim.type, submit_claim.key, number, digest, expires)
    ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
    WHERE k.expires_at <= submit_claim.now;
    IF FOUND THEN
      RETURN number;
    END IF;
    SELECT k.id, k.hash INTO held FROM idempotency_keys k WHERE k.type = submit_claim.type AND k.key = submit_claim.key;
    CONTINUE WHEN NOT FOUND; -- it has expired and was deleted in between
    IF held.hash <> digest THEN
      PERFORM submit_refuse('key_reused', format('key stands for task %s, which has another context', submit_id(type, held.id)), 'key');
    END IF;
    RETURN held.id;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_id writes a task's id as the API does.
CREATE FUNCTION submit_id(type text, number bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT type || '.' || (number >> 40) || '.' || (number & (1::bigint << 40) - 1)
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_quota refuses a task that the quota of pending tasks has no room for.
CREATE FUNCTION submit_quota(quota bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  used bigint;
BEGIN
  IF quota = 0 THEN
    RETURN;
  END IF;
  SELECT coalesce(sum(submitted - succeeded - failed - cancelled), 0) INTO used FROM tallies;
  IF used >= quota THEN
    PERFORM submit_refuse('quota_exceeded', format('the tenant''s quota pending_tasks is %s, and %s are in use', quota, used));
  END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_write writes a task with its first token row, and tells the dispatchers, who hear of
-- it when the transaction is committed. What they are told is rounded down to a second, so
-- that Postgres sends it once for many tasks of a transaction.
CREATE FUNCTION submit_write(type text, number bigint, now timestamptz, order_time timestamptz, options json, context json,
  stage text, flow_key text) RETURNS void
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
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  now     timestamptz := clock_timestamp();
  most    submit_limits;
  at      int;
  spec    json;
  number  bigint;
  owner   bigint;
  expires timestamptz;
BEGIN
  SELECT * INTO STRICT most FROM submit_limits;
  IF most.refusal IS NOT NULL THEN
    PERFORM submit_refuse('tenant_suspended', most.refusal);
  END IF;
  PERFORM submit_check(type, context, key, priority, run_at, flow_key, key_window, most.context_bytes, now);
  key := nullif(key, '');
  flow_key := nullif(flow_key, '');

  SELECT t.end_pos INTO at FROM task_types t WHERE t.name = submit_task.type;
  IF FOUND THEN
    at := submit_roll(type, at);
    SELECT t.spec INTO spec FROM task_types t WHERE t.name = submit_task.type;
  END IF;
  IF spec IS NULL THEN
    PERFORM submit_refuse('not_found', 'there is no task type ' || type, 'type');
  ELSIF at IS NULL THEN -- a snapshot shows a type that is gone, or was made again since
    PERFORM submit_refuse('conflict', 'the task type ' || type || ' has changed since this transaction began; try it again');
  END IF;

  number := (at::bigint << 40) + (1::bigint << 39) + nextval('submit_numbers');
  IF key IS NOT NULL THEN
    expires := now + submit_window(type, key_window, (spec ->> 'retention')::interval);
    owner := submit_claim(type, key, number, context, expires, now);
    IF owner <> number THEN
      RETURN submit_id(type, owner);
    END IF;
  END IF;
  PERFORM submit_quota(most.pending_tasks);
  PERFORM submit_write(type, number, now,
    CASE WHEN run_at > now THEN run_at
      ELSE now - make_interval(secs => coalesce(priority, (spec #>> '{stages,0,priority}')::int, 0)) END,
    nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key))::text, '{}')::json,
    context, spec #>> '{stages,0,name}', CASE WHEN spec -> 'flow' IS NOT NULL THEN flow_key END);
  RETURN submit_id(type, number);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_window returns how long a key stands for a task: no longer than the task is kept.
CREATE FUNCTION submit_window(type text, key_window interval, retention interval) RETURNS interval
LANGUAGE plpgsql AS $$
BEGIN
  IF key_window > retention THEN
    PERFORM submit_refuse('invalid_argument', format('key_window is %s; tasks of %s are kept for %s',
      submit_duration(extract(epoch FROM key_window)), type, submit_duration(extract(epoch FROM retention))), 'key_window');
  END IF;
  RETURN coalesce(nullif(key_window, interval '0'), least(interval '24 hours', retention));
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
END $$;
-- +goose StatementEnd

-- +goose Down
DROP FUNCTION submit_task, submit_window, submit_write, submit_quota, submit_claim, submit_id, submit_roll, submit_check,
  submit_depth, submit_duration, submit_refuse, submit_table;
DROP SEQUENCE submit_numbers;
DROP TABLE submit_limits;
