-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- A table set is the rolled tables (task, journal, ready) of one task type, or ('') those that all
-- other types share. Ready rows are written to end_pos and leased from begin_pos on; the oldest
-- tables that are kept are those of first_pos. A set that gets no more tasks ends up with a
-- begin_pos after its end_pos.
CREATE TABLE table_sets (
  name      text PRIMARY KEY,
  first_pos int  NOT NULL,
  begin_pos int  NOT NULL,
  end_pos   int  NOT NULL,
  CHECK (first_pos >= 1 AND begin_pos >= first_pos AND end_pos >= begin_pos - 1)
);
INSERT INTO table_sets (name, first_pos, begin_pos, end_pos)
  SELECT name, first_pos, begin_pos, end_pos FROM task_types;

-- number names the type in the rows of all tables. New tasks go to table_set; its rolls from
-- from_pos on may have tasks of the type. Earlier ones are in the earlier set, if there is one.
CREATE SEQUENCE type_numbers AS int;
ALTER TABLE task_types
  ADD COLUMN number      int  NOT NULL DEFAULT nextval('type_numbers') UNIQUE,
  ADD COLUMN table_set   text REFERENCES table_sets (name),
  ADD COLUMN from_pos    int  NOT NULL DEFAULT 1,
  ADD COLUMN earlier_set text REFERENCES table_sets (name);
UPDATE task_types SET table_set = name;
ALTER TABLE task_types
  ALTER COLUMN table_set SET NOT NULL,
  ALTER COLUMN from_pos DROP DEFAULT,
  ADD UNIQUE (name, table_set), -- so a move is a change of a key, which FOR KEY SHARE notices
  DROP COLUMN first_pos, DROP COLUMN begin_pos, DROP COLUMN end_pos;

ALTER TABLE rolls DROP CONSTRAINT rolls_type_fkey;
ALTER TABLE rolls RENAME COLUMN type TO table_set;
ALTER TABLE rolls ADD FOREIGN KEY (table_set) REFERENCES table_sets (name) ON DELETE CASCADE;

-- Deleted types whose rows are still in shared tables.
CREATE TABLE deleted_types (
  number int PRIMARY KEY,
  name   text NOT NULL
);

-- The live tasks of all types that are leased, or wait. The settings are those of
-- store/table_settings.go. There are no CHECK constraints: Postgres reads their text anew for each
-- statement.
CREATE TABLE lease (
  type      int         NOT NULL,
  id        bigint      NOT NULL,
  seq       smallint    NOT NULL,
  stage     text        NOT NULL,
  attempt   smallint    NOT NULL,
  node      text        NOT NULL,
  leased_at timestamptz NOT NULL,
  until     timestamptz NOT NULL,
  progress  smallint,
  note      text,
  key       text,
  endpoint  uuid,
  PRIMARY KEY (type, id)
) WITH (fillfactor = 70, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);
CREATE INDEX ON lease (type, key) WHERE key IS NOT NULL;
CREATE TABLE wait (
  type       int         NOT NULL,
  id         bigint      NOT NULL,
  seq        smallint    NOT NULL,
  stage      text        NOT NULL,
  attempt    smallint    NOT NULL,
  order_time timestamptz NOT NULL,
  reason     text        NOT NULL,
  key        text,
  until      timestamptz NOT NULL,
  since      timestamptz,
  PRIMARY KEY (type, id)
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);
CREATE INDEX ON wait (type, until);
CREATE INDEX ON wait (type, key, order_time, id) WHERE reason = 'flow_key';
CREATE INDEX ON wait (type, key) WHERE key IS NOT NULL AND reason <> 'flow_key';
CREATE INDEX ON wait (type, stage, order_time, id) WHERE until = 'infinity' AND reason <> 'flow_key';

DROP FUNCTION open_roll, submit_table, submit_roll, submit_write;

-- +goose StatementBegin
-- open_roll writes the row of a new roll of a table set.
CREATE FUNCTION open_roll(table_set text, roll int, now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM FROM numbering n WHERE n.history <> history('rolls'::regclass) FOR UPDATE;
  IF FOUND THEN
    PERFORM number_from(random_number());
  END IF;
  INSERT INTO rolls (table_set, position, opened_at, history, next_number)
  SELECT open_roll.table_set, open_roll.roll, open_roll.now, n.history, n.first_number FROM numbering n;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_table returns the name of a rolled table. It is qualified, as it may not be there: a
-- temporary table of that name must not be taken for it.
CREATE FUNCTION submit_table(kind text, table_set text, roll int) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format('%I.%I', current_schema(), concat_ws('_', kind, nullif(table_set, ''), roll))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_place returns where a type's new tasks go, and keeps that roll from being sealed and the
-- type from being deleted until the transaction ends. spec is null when there is no such type; roll
-- is null when a snapshot shows a type that is gone, was made again or has other tables by now, 0
-- when it is of another history. Later rolls are looked up by name, as a snapshot may be older than
-- they are. A roll is sealed after the next one was made, and never while we hold it. The roll of the
-- snapshot must be of this history; then all later ones are: a history ends all transactions of the
-- one before.
CREATE FUNCTION submit_place(type text, OUT type_number int, OUT spec json, OUT table_set text, OUT roll int)
LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    SELECT t.number, t.spec, s.name, s.end_pos INTO type_number, spec, table_set, roll
    FROM task_types t JOIN table_sets s ON s.name = t.table_set WHERE t.name = submit_place.type;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    PERFORM FROM rolls r WHERE r.table_set = submit_place.table_set AND r.position = submit_place.roll
      AND r.history <> history('rolls'::regclass);
    IF FOUND THEN
      roll := 0;
      RETURN;
    END IF;
    WHILE to_regclass(submit_table('task', table_set, roll + 1)) IS NOT NULL LOOP
      roll := roll + 1;
    END LOOP;
    BEGIN
      EXECUTE format('LOCK TABLE %s, %s IN ROW EXCLUSIVE MODE', submit_table('task', table_set, roll),
        submit_table('ready', table_set, roll));
      IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM FROM task_types t WHERE t.name = submit_place.type FOR KEY SHARE; -- fails if it was deleted or moved
      END IF;
    EXCEPTION WHEN undefined_table OR serialization_failure THEN
      roll := NULL;
      RETURN;
    END;
    CONTINUE WHEN to_regclass(submit_table('task', table_set, roll + 1)) IS NOT NULL;
    PERFORM FROM task_types t WHERE t.name = submit_place.type AND t.number = type_number
      AND t.table_set = submit_place.table_set;
    EXIT WHEN FOUND;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_write writes a task with its first token row, and tells the dispatchers, who hear of
-- it when the transaction is committed. What they are told is rounded down to a second, so
-- that Postgres sends it once for many tasks of a transaction.
CREATE FUNCTION submit_write(table_set text, type_number int, type text, number bigint, now timestamptz,
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
-- submit_claim has a key stand for a task, and returns the task that it stands for: this
-- one, or an earlier one; same reports whether that has the same context. It waits for other
-- transactions that have the key. A key whose task was dropped with its roll stands for none
-- any more.
CREATE OR REPLACE FUNCTION submit_claim(type text, key text, number bigint, context json, expires timestamptz, now timestamptz,
  OUT owner bigint, OUT same boolean)
LANGUAGE plpgsql AS $$
DECLARE
  digest bytea := sha256(convert_to(context::text, 'UTF8'));
  first  bigint := (SELECT coalesce(e.first_pos, s.first_pos)::bigint << 40
    FROM task_types t JOIN table_sets s ON s.name = t.table_set LEFT JOIN table_sets e ON e.name = t.earlier_set
    WHERE t.name = submit_claim.type);
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
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE OR REPLACE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  now     timestamptz := clock_timestamp();
  most    submit_limits;
  place   record;
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

    place := submit_place(type);
    IF place.spec IS NULL THEN
      refusal := ARRAY['not_found', 'there is no task type ' || type, 'type'];
      EXIT trying;
    ELSIF place.roll = 0 THEN
      refusal := ARRAY['conflict', 'the database was restored or has failed over, and no node of asyncflow has made new tables for '
        || type || ' yet; try it again', ''];
      EXIT trying;
    ELSIF place.roll IS NULL THEN -- a snapshot shows a type that is gone, or was made again since
      refusal := ARRAY['conflict', 'the task type ' || type || ' has changed since this transaction began; try it again', ''];
      EXIT trying;
    END IF;

    number := (place.roll::bigint << 40) + (1::bigint << 39) + nextval('submit_numbers');
    IF key IS NOT NULL THEN
      keep := (place.spec ->> 'retention')::interval;
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
    PERFORM submit_write(place.table_set, place.type_number, type, number, now,
      CASE WHEN run_at > now THEN run_at
        ELSE now - make_interval(secs => coalesce(priority, (place.spec #>> '{stages,0,priority}')::int, 0)) END,
      nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key))::text, '{}')::json,
      context, place.spec #>> '{stages,0,name}', CASE WHEN place.spec -> 'flow' IS NOT NULL THEN flow_key END);
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

-- +goose StatementBegin
DO $$
BEGIN
  RAISE EXCEPTION 'there is no way back from tables that task types share: restore a backup';
END $$;
-- +goose StatementEnd
