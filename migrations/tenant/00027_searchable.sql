-- +goose Up
-- +goose StatementBegin

-- search_from has the searchable fields of a type, each with the first roll in which all its tasks
-- are found by the field. A roll is searchable if it has a table for that: the rolls that nodes of
-- this version open. spec of the type has the fields, too: a node of the version before that
-- changes the type leaves them out there.
ALTER TABLE task_types ADD COLUMN search_from json;
ALTER TABLE rolls ADD COLUMN searchable boolean NOT NULL DEFAULT false;

-- search_entry returns what stands for a value of a searchable field. Its length is that of any
-- other; two values may have the same one, so whoever looks for a value compares it, too.
CREATE FUNCTION search_entry(field text, value text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT ('x' || encode(substr(sha256(convert_to(field, 'UTF8') || '\x00'::bytea || convert_to(value, 'UTF8')), 1, 8), 'hex'))::bit(64)::bigint
$$;

-- search_entries returns the entries of a task with some options in the fields that are searchable in
-- a roll; without search_from, in all fields that could be.
CREATE FUNCTION search_entries(search_from json, roll int, options json) RETURNS SETOF bigint
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
  SELECT DISTINCT search_entry(f.field, f.value) FROM (
    SELECT 'user', options ->> 'user'
    UNION ALL SELECT 'flow_key', options ->> 'flow_key'
    UNION ALL SELECT 'tags', t FROM json_array_elements_text(options -> 'tags') t
    UNION ALL SELECT 'metadata.' || m.key, m.value FROM json_each_text(options -> 'metadata') m) AS f (field, value)
  WHERE f.value IS NOT NULL AND (search_from IS NULL OR (search_from ->> f.field)::int <= roll)
$$;

-- submit_search writes the entries of a task. A snapshot may be older than the roll, and then has no
-- row of it: whether the roll has the table, the catalog says.
CREATE FUNCTION submit_search(table_set text, type_number int, number bigint, options json) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  roll   int := number >> 40;
  fields json;
BEGIN
  SELECT t.search_from INTO fields FROM task_types t WHERE t.number = type_number;
  IF fields IS NOT NULL AND to_regclass(submit_table('search', table_set, roll)) IS NOT NULL THEN
    EXECUTE format('INSERT INTO %s (type, entry, id) SELECT $1, e, $2 FROM search_entries($3, $4, $5) e',
      submit_table('search', table_set, roll)) USING type_number, number, fields, roll, options;
  END IF;
END $$;

-- submit_place returns where a type's new tasks go, and keeps that roll from being sealed and the
-- type from being deleted until the transaction ends. spec is null when there is no such type; roll
-- is null when a snapshot shows a type that is gone, was made again or has other tables by now, 0
-- when it is of another history. Later rolls are looked up by name, as a snapshot may be older than
-- they are. A roll is sealed after the next one was made, and never while we hold it. The roll of the
-- snapshot must be of this history; then all later ones are: a history ends all transactions of the
-- one before.
CREATE OR REPLACE FUNCTION submit_place(type text, OUT type_number int, OUT spec json, OUT table_set text, OUT roll int)
LANGUAGE plpgsql AS $$
DECLARE
  seen int;
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
    seen := roll;
    WHILE to_regclass(submit_table('task', table_set, roll + 1)) IS NOT NULL LOOP
      roll := roll + 1;
    END LOOP;
    BEGIN
      EXECUTE format('LOCK TABLE %s, %s IN ROW EXCLUSIVE MODE', submit_table('task', table_set, roll),
        submit_table('ready', table_set, roll));
      IF current_setting('transaction_isolation') <> 'read committed' THEN
        IF roll = seen THEN
          PERFORM FROM task_types t WHERE t.name = submit_place.type FOR KEY SHARE; -- fails if it was deleted or moved
        ELSE -- or changed at all: the later roll may be the first in which a field is searchable
          PERFORM FROM task_types t WHERE t.name = submit_place.type FOR SHARE;
        END IF;
      END IF;
    EXCEPTION WHEN undefined_table OR serialization_failure THEN
      roll := NULL;
      RETURN;
    END;
    CONTINUE WHEN to_regclass(submit_table('task', table_set, roll + 1)) IS NOT NULL;
    SELECT t.spec INTO spec FROM task_types t WHERE t.name = submit_place.type AND t.number = type_number
      AND t.table_set = submit_place.table_set; -- not older than the roll
    EXIT WHEN FOUND;
  END LOOP;
END $$;

-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE OR REPLACE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL, context_from text DEFAULT NULL,
  on_final json DEFAULT NULL, labels json DEFAULT NULL, key_until_final boolean DEFAULT NULL, on_conflict text DEFAULT NULL)
  RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  now     timestamptz := clock_timestamp();
  most    submit_limits;
  place   record;
  number  bigint;
  claimed record;
  keep    interval;
  refusal text[];
  late    text[];
  edges   int;
  orders  timestamptz;
  options json;
BEGIN
  <<trying>> -- it is left with a refusal, or the function with an id
  BEGIN
    SELECT * INTO STRICT most FROM submit_limits;
    IF most.refusal IS NOT NULL THEN
      refusal := ARRAY['tenant_suspended', most.refusal, ''];
      EXIT trying;
    END IF;
    refusal := submit_check(type, context, key, priority, run_at, flow_key, key_window, most.context_bytes, now);
    IF depends_on IS NOT NULL OR context_from IS NOT NULL THEN
      late := submit_check_edges(depends_on, context_from);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
    IF on_final IS NOT NULL THEN
      late := submit_check_on_final(on_final);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
    IF labels IS NOT NULL THEN
      late := submit_check_labels(labels);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
    late := submit_check_conflict(key, key_window, key_until_final, on_conflict);
    refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
      ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
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
      claimed := submit_claim(type, key, number, context,
        CASE WHEN key_until_final THEN '9999-01-01 00:00:00+00' ELSE now + submit_window(key_window, keep) END, now);
      IF claimed.owner <> number AND on_conflict = 'reject' THEN
        refusal := ARRAY['key_reused', format('key stands for task %s', submit_id(type, claimed.owner)), 'key'];
        EXIT trying;
      ELSIF NOT claimed.same THEN
        refusal := ARRAY['key_reused',
          format('key stands for task %s, which has another context', submit_id(type, claimed.owner)), 'key'];
        EXIT trying;
      ELSIF claimed.owner <> number THEN
        RETURN submit_id(type, claimed.owner);
      END IF;
    END IF;
    refusal := submit_quota(most.pending_tasks);
    EXIT trying WHEN refusal IS NOT NULL;

    edges := nullif(json_array_length(depends_on), 0);
    orders := CASE WHEN run_at > now THEN run_at
      ELSE now - make_interval(secs => coalesce(priority, (place.spec #>> '{stages,0,priority}')::int, 0)) END;
    options := nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key,
      'depends_on', edges, 'context_from', nullif(context_from, ''),
      'on_final', CASE WHEN on_final IS NOT NULL THEN
        json_build_object('url', on_final ->> 'url', 'on', on_final -> 'on', 'target', on_final ->> 'target') END,
      'user', labels -> 'user', 'tags', labels -> 'tags', 'metadata', labels -> 'metadata', 'trace', labels -> 'trace'))::text, '{}')::json;
    IF place.spec -> 'flow' IS NULL THEN
      flow_key := NULL;
    END IF;
    IF edges IS NULL THEN
      PERFORM submit_write(place.table_set, place.type_number, type, number, now, orders, options, context,
        place.spec #>> '{stages,0,name}', flow_key);
    ELSE
      refusal := submit_edges(place.type_number, number, key, depends_on, now);
      EXIT trying WHEN refusal IS NOT NULL;
      PERFORM submit_wait(place.table_set, place.type_number, type, number, now, orders, options, context,
        place.spec #>> '{stages,0,name}', flow_key);
    END IF;
    IF place.spec -> 'searchable' IS NOT NULL AND options IS NOT NULL THEN
      PERFORM submit_search(place.table_set, place.type_number, number, options);
    END IF;
    RETURN submit_id(type, number);
  END trying;
  RAISE EXCEPTION USING MESSAGE = refusal[2], DETAIL = refusal[1], COLUMN = refusal[3], ERRCODE = submit_sqlstate(refusal[1]);
END $$;

-- What was renamed for views that depend on it submits as submit_task does.
DO $do$
BEGIN
  IF to_regprocedure('submit_task_23(text,json,text,int,timestamptz,text,interval,json,text,json,json)') IS NOT NULL THEN
    CREATE OR REPLACE FUNCTION submit_task_23(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL,
      run_at timestamptz DEFAULT NULL, flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL,
      context_from text DEFAULT NULL, on_final json DEFAULT NULL, labels json DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
      RETURN submit_task(type, context, key, priority, run_at, flow_key, key_window, depends_on, context_from, on_final, labels);
    END $$;
  END IF;
  IF to_regprocedure('submit_task_10(text,json,text,int,timestamptz,text,interval,json,text)') IS NOT NULL THEN
    CREATE OR REPLACE FUNCTION submit_task_10(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL,
      run_at timestamptz DEFAULT NULL, flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL,
      context_from text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
      RETURN submit_task(type, context, key, priority, run_at, flow_key, key_window, depends_on, context_from);
    END $$;
  END IF;
END $do$;

REVOKE ALL ON FUNCTION search_entry, search_entries, submit_search FROM PUBLIC;

-- +goose StatementEnd
