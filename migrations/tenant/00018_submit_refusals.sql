-- +goose Up

-- An empty key is refused, as the API does: it looked like none, in silence. And whoever submits sees of a
-- refusal what the API says, and one line of context: submit_task alone raises, and the functions that it
-- calls return a refusal: {code, message, field}, null when all is well.
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

DROP FUNCTION submit_check, submit_claim, submit_quota, submit_window, submit_refuse;

-- +goose StatementBegin
-- submit_check returns the refusal of what the API would refuse, in its words.
CREATE FUNCTION submit_check(type text, context json, key text, priority int, run_at timestamptz, flow_key text,
  key_window interval, context_limit bigint, now timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  size     bigint := octet_length(convert_to(context::text, 'UTF8'));
  seconds  numeric := extract(epoch FROM key_window);
  fields   text[] := '{}';
  problems text[] := '{}';
  problem  text;
  refusal  text[];
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

  problem := CASE
    WHEN key = '' THEN 'must not be empty'
    WHEN octet_length(key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(key))
  END;
  fields := fields || 'key'::text; problems := problems || problem;

  problem := CASE
    WHEN key = '' OR octet_length(key) > 255 THEN NULL
    WHEN seconds <> 0 AND key IS NULL THEN 'needs a key'
    WHEN seconds NOT BETWEEN 0 AND 15552000 THEN format('is %s; it must be up to 4320h0m0s (180 days)', submit_duration(seconds))
  END;
  fields := fields || 'key_window'::text; problems := problems || problem;

  problem := CASE
    WHEN flow_key = '' THEN 'must not be empty'
    WHEN octet_length(flow_key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(flow_key))
  END;
  fields := fields || 'flow_key'::text; problems := problems || problem;

  problem := CASE WHEN run_at > now + interval '365 days' THEN 'is more than 8760h0m0s (a year) ahead' END;
  fields := fields || 'run_at'::text; problems := problems || problem;

  SELECT ARRAY[CASE WHEN size > context_limit THEN 'too_large' ELSE 'invalid_argument' END,
    string_agg(field || ' ' || what, '; ' ORDER BY i), (array_agg(field ORDER BY i))[1]] INTO refusal
  FROM unnest(fields, problems) WITH ORDINALITY AS p (field, what, i) WHERE what IS NOT NULL HAVING count(*) > 0;
  RETURN refusal;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_claim has a key stand for a task, and returns the task that it stands for: this
-- one, or an earlier one; same reports whether that has the same context. It waits for other
-- transactions that have the key. A key whose task was dropped with its roll stands for none
-- any more.
CREATE FUNCTION submit_claim(type text, key text, number bigint, context json, expires timestamptz, now timestamptz,
  OUT owner bigint, OUT same boolean)
LANGUAGE plpgsql AS $$
DECLARE
  digest bytea := sha256(convert_to(context::text, 'UTF8'));
  first  bigint := (SELECT t.first_pos::bigint << 40 FROM task_types t WHERE t.name = submit_claim.type);
BEGIN
  LOOP
    INSERT INTO idempotency_keys AS k (type, key, id, hash, expires_at)
    VALUES (submit_claim.type, submit_claim.key, number, digest, expires)
    ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
    WHERE k.expires_at <= submit_claim.now OR k.id < first;
    IF FOUND THEN
      owner := number;
      same := true;
      RETURN;
    END IF;
    SELECT k.id, k.hash = digest INTO owner, same FROM idempotency_keys k
    WHERE k.type = submit_claim.type AND k.key = submit_claim.key;
    IF FOUND THEN -- else it has expired and was deleted in between
      RETURN;
    END IF;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_quota returns the refusal of a task that the quota of pending tasks has no room for.
CREATE FUNCTION submit_quota(quota bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  used bigint;
BEGIN
  IF quota = 0 THEN
    RETURN NULL;
  END IF;
  SELECT coalesce(sum(submitted - succeeded - failed - cancelled), 0) INTO used FROM tallies;
  IF used >= quota THEN
    RETURN ARRAY['quota_exceeded', format('the tenant''s quota pending_tasks is %s, and %s are in use', quota, used), ''];
  END IF;
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_roll returns the position of the type's open roll, and keeps it from being sealed
-- until the transaction ends; null when its tables are gone, 0 when it is of another history. What there is is looked up by
-- name, as a snapshot may be older than the roll: a roll is sealed after the next one was made,
-- and never while we hold it. The roll of the snapshot must be of this history; then all later
-- ones are: a history ends all transactions of the one before.
CREATE OR REPLACE FUNCTION submit_roll(type text, roll int) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM rolls r WHERE r.type = submit_roll.type AND r.position = submit_roll.roll AND r.history <> history('rolls'::regclass);
  IF FOUND THEN
    RETURN 0;
  END IF;
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
-- submit_window returns how long a key stands for a task, which is kept for a time: no longer than that.
CREATE FUNCTION submit_window(key_window interval, keep interval) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(nullif(key_window, interval '0'), least(interval '24 hours', keep))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_sqlstate returns the SQLSTATE of a refusal, by its code.
CREATE FUNCTION submit_sqlstate(code text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE code
    WHEN 'invalid_argument' THEN '22023' -- invalid_parameter_value
    WHEN 'too_large'        THEN '54000' -- program_limit_exceeded
    WHEN 'not_found'        THEN '42704' -- undefined_object
    WHEN 'key_reused'       THEN '23505' -- unique_violation
    WHEN 'quota_exceeded'   THEN '53400' -- configuration_limit_exceeded
    WHEN 'tenant_suspended' THEN '55000' -- object_not_in_prerequisite_state
    WHEN 'conflict'         THEN '40001' -- serialization_failure
  END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE OR REPLACE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  now     timestamptz := clock_timestamp();
  most    submit_limits;
  at      int;
  spec    json;
  number  bigint;
  claimed record;
  keep    interval;
  refusal text[];
BEGIN
  <<trying>> -- it is left with a refusal, or the function with an id
  BEGIN
    SELECT * INTO STRICT most FROM submit_limits;
    IF most.refusal IS NOT NULL THEN
      refusal := ARRAY['tenant_suspended', most.refusal, ''];
      EXIT trying;
    END IF;
    refusal := submit_check(type, context, key, priority, run_at, flow_key, key_window, most.context_bytes, now);
    EXIT trying WHEN refusal IS NOT NULL;

    SELECT t.end_pos INTO at FROM task_types t WHERE t.name = submit_task.type;
    IF FOUND THEN
      at := submit_roll(type, at);
      SELECT t.spec INTO spec FROM task_types t WHERE t.name = submit_task.type;
    END IF;
    IF spec IS NULL THEN
      refusal := ARRAY['not_found', 'there is no task type ' || type, 'type'];
      EXIT trying;
    ELSIF at = 0 THEN
      refusal := ARRAY['conflict', 'the database was restored or has failed over, and no node of asyncflow has made new tables for '
        || type || ' yet; try it again', ''];
      EXIT trying;
    ELSIF at IS NULL THEN -- a snapshot shows a type that is gone, or was made again since
      refusal := ARRAY['conflict', 'the task type ' || type || ' has changed since this transaction began; try it again', ''];
      EXIT trying;
    END IF;

    number := (at::bigint << 40) + (1::bigint << 39) + nextval('submit_numbers');
    IF key IS NOT NULL THEN
      keep := (spec ->> 'retention')::interval;
      IF key_window > keep THEN
        refusal := ARRAY['invalid_argument', format('key_window is %s; tasks of %s are kept for %s',
          submit_duration(extract(epoch FROM key_window)), type, submit_duration(extract(epoch FROM keep))), 'key_window'];
        EXIT trying;
      END IF;
      claimed := submit_claim(type, key, number, context, now + submit_window(key_window, keep), now);
      IF NOT claimed.same THEN
        refusal := ARRAY['key_reused',
          format('key stands for task %s, which has another context', submit_id(type, claimed.owner)), 'key'];
        EXIT trying;
      ELSIF claimed.owner <> number THEN
        RETURN submit_id(type, claimed.owner);
      END IF;
    END IF;
    refusal := submit_quota(most.pending_tasks);
    EXIT trying WHEN refusal IS NOT NULL;
    PERFORM submit_write(type, number, now,
      CASE WHEN run_at > now THEN run_at
        ELSE now - make_interval(secs => coalesce(priority, (spec #>> '{stages,0,priority}')::int, 0)) END,
      nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key))::text, '{}')::json,
      context, spec #>> '{stages,0,name}', CASE WHEN spec -> 'flow' IS NOT NULL THEN flow_key END);
    RETURN submit_id(type, number);
  END trying;
  RAISE EXCEPTION USING MESSAGE = refusal[2], DETAIL = refusal[1], COLUMN = refusal[3], ERRCODE = submit_sqlstate(refusal[1]);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
DROP FUNCTION submit_check, submit_claim, submit_quota, submit_window, submit_sqlstate;

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
-- submit_roll returns the position of the type's open roll, and keeps it from being sealed
-- until the transaction ends; null when its tables are gone. What there is is looked up by
-- name, as a snapshot may be older than the roll: a roll is sealed after the next one was made,
-- and never while we hold it. The roll of the snapshot must be of this history; then all later
-- ones are: a history ends all transactions of the one before.
CREATE OR REPLACE FUNCTION submit_roll(type text, roll int) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM rolls r WHERE r.type = submit_roll.type AND r.position = submit_roll.roll AND r.history <> history('rolls'::regclass);
  IF FOUND THEN
    PERFORM submit_refuse('conflict', 'the database was restored or has failed over, and no node of asyncflow has made new tables for '
      || type || ' yet; try it again');
  END IF;
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
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE OR REPLACE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
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
DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
END $$;
-- +goose StatementEnd
