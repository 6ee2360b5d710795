-- +goose Up
-- +goose StatementBegin

-- A key that stands for its task until that is final expires in the year 9999: nodes of the version
-- before can't read an infinite time.
CREATE INDEX idempotency_keys_until_final ON idempotency_keys (id)
  WHERE expires_at = '9999-01-01 00:00:00+00'::timestamptz;

-- submit_same_context reports whether a task was submitted with a context of the same value: white
-- space, the order of members and escapes don't matter.
CREATE FUNCTION submit_same_context(table_set text, type_number int, number bigint, context json) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  before json;
BEGIN
  EXECUTE format('SELECT context FROM %s WHERE type = $1 AND id = $2 AND options -> ''erased'' IS NULL',
    submit_table('task', table_set, (number >> 40)::int)) INTO before USING type_number, number;
  RETURN coalesce(before::jsonb::text = context::jsonb::text, false);
EXCEPTION WHEN undefined_table OR data_exception OR program_limit_exceeded THEN
  RETURN false; -- jsonb can't have it, or its roll was dropped
END $$;

-- submit_claim has a key stand for a task, and returns the task that it stands for: this
-- one, or an earlier one; same reports whether that has the same context. It waits for other
-- transactions that have the key. A key whose task was dropped with its roll stands for none
-- any more, nor does one that stood for a task until it was final, after its end.
CREATE OR REPLACE FUNCTION submit_claim(type text, key text, number bigint, context json, expires timestamptz, now timestamptz,
  OUT owner bigint, OUT same boolean)
LANGUAGE plpgsql AS $$
DECLARE
  digest    bytea := sha256(convert_to(context::text, 'UTF8'));
  kind      record;
  kept      record;
  table_set text;
BEGIN
  SELECT t.number, t.from_pos, t.earlier_set, t.table_set, coalesce(e.first_pos, s.first_pos)::bigint << 40 AS first INTO kind
    FROM task_types t JOIN table_sets s ON s.name = t.table_set LEFT JOIN table_sets e ON e.name = t.earlier_set
    WHERE t.name = submit_claim.type;
  LOOP
    INSERT INTO idempotency_keys AS k (type, key, id, hash, expires_at)
    VALUES (submit_claim.type, submit_claim.key, number, digest, expires)
    ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
    WHERE k.expires_at <= submit_claim.now OR k.id < kind.first;
    IF FOUND THEN
      owner := number;
      same := true;
      RETURN;
    END IF;
    SELECT k.id, k.hash = digest AS same, k.expires_at = '9999-01-01 00:00:00+00' AS until_final INTO kept FROM idempotency_keys k
    WHERE k.type = submit_claim.type AND k.key = submit_claim.key FOR UPDATE;
    CONTINUE WHEN NOT FOUND; -- it has expired and was deleted in between
    table_set := CASE WHEN kept.id >> 40 < kind.from_pos THEN kind.earlier_set ELSE kind.table_set END;
    IF kept.until_final AND coalesce(signal_over(table_set, kind.number, kept.id), true) THEN
      UPDATE idempotency_keys k SET id = submit_claim.number, hash = digest, expires_at = expires
      WHERE k.type = submit_claim.type AND k.key = submit_claim.key;
      owner := number;
      same := true;
      RETURN;
    END IF;
    owner := kept.id;
    same := kept.same OR submit_same_context(table_set, kind.number, kept.id, context);
    RETURN;
  END LOOP;
END $$;

-- submit_check_conflict returns the refusal of what a submit says about its key.
CREATE FUNCTION submit_check_conflict(key text, key_window interval, key_until_final boolean, on_conflict text) RETURNS text[]
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN key_until_final AND key IS NULL THEN ARRAY['invalid_argument', 'key_until_final needs a key', 'key_until_final']
    WHEN key_until_final AND key_window IS NOT NULL
      THEN ARRAY['invalid_argument', 'key_until_final and key_window exclude each other', 'key_until_final']
    WHEN on_conflict = 'cancel_running'
      THEN ARRAY['invalid_argument', 'on_conflict can''t be cancel_running by SQL: it must be return or reject', 'on_conflict']
    WHEN on_conflict NOT IN ('return', 'reject')
      THEN ARRAY['invalid_argument', format('on_conflict is %s; it must be return or reject', left(on_conflict, 40)), 'on_conflict']
    WHEN on_conflict IS NOT NULL AND key IS NULL THEN ARRAY['invalid_argument', 'on_conflict needs a key', 'on_conflict']
  END
$$;

-- submit_task gets the parameters key_until_final and on_conflict. The roles that may call it still
-- may. Whoever may call it can make views that depend on it: these keep the function of before, under
-- another name.
DO $do$
DECLARE
  roles text[];
  role  text;
BEGIN
  SELECT array_agg(r.rolname) INTO roles FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
  WHERE p.oid = 'submit_task(text,json,text,int,timestamptz,text,interval,json,text,json,json)'::regprocedure
    AND a.privilege_type = 'EXECUTE' AND r.oid <> p.proowner;
  BEGIN
    DROP FUNCTION submit_task(text, json, text, int, timestamptz, text, interval, json, text, json, json);
  EXCEPTION WHEN dependent_objects_still_exist THEN
    ALTER FUNCTION submit_task(text, json, text, int, timestamptz, text, interval, json, text, json, json) RENAME TO submit_task_23;
  END;
  EXECUTE $create$
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
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
    RETURN submit_id(type, number);
  END trying;
  RAISE EXCEPTION USING MESSAGE = refusal[2], DETAIL = refusal[1], COLUMN = refusal[3], ERRCODE = submit_sqlstate(refusal[1]);
END $$
$create$;
  REVOKE ALL ON FUNCTION submit_task FROM PUBLIC;
  FOREACH role IN ARRAY coalesce(roles, '{}') LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION submit_task TO %I', role);
  END LOOP;
END $do$;

REVOKE ALL ON FUNCTION submit_same_context, submit_check_conflict FROM PUBLIC;

-- +goose StatementEnd
