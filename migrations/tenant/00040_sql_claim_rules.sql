-- +goose Up
-- +goose StatementBegin

-- submit_given returns a member of an object; null: it is absent, or null.
CREATE FUNCTION submit_given(doc json, name text) RETURNS json
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN json_typeof(doc -> name) <> 'null' THEN doc -> name END $$;

-- submit_claim_rules returns the rules of who may claim a task as its options have them; null: none.
CREATE FUNCTION submit_claim_rules(claim json) RETURNS json
LANGUAGE sql IMMUTABLE AS $$
  SELECT nullif(json_strip_nulls(json_build_object('exclude', submit_given(claim, 'exclude'),
    'labels', submit_given(claim, 'labels')))::text, '{}')::json
$$;

-- submit_claim_bytes returns how many bytes the rules take beside the task in line, where < > and & take
-- six.
CREATE FUNCTION submit_claim_bytes(claim json) RETURNS int
LANGUAGE sql IMMUTABLE AS $$
  SELECT octet_length(t) + 5 * (length(t) - length(translate(t, '<>&', '')))
  FROM (SELECT json_strip_nulls(json_build_object('exclude', submit_given(claim, 'exclude'), 'labels',
    (SELECT json_agg(k || '=' || (v #>> '{}')) FROM json_each(submit_given(claim, 'labels')) AS m (k, v))))::text AS t) t
$$;

-- submit_check_claim returns the refusal of the rules of who may claim a task.
CREATE FUNCTION submit_check_claim(claim json) RETURNS text[]
LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  word    constant text := '^[A-Za-z0-9][A-Za-z0-9_.:/-]*$';
  control constant text := '[\u0001-\u001F\u007F-\u009F]';
  names   json;
  labels  json;
  problem text;
BEGIN
  names := submit_given(claim, 'exclude'); -- not above, where nothing is caught
  labels := submit_given(claim, 'labels');
  problem := CASE WHEN json_typeof(claim) <> 'object' THEN 'claim must be an object' END;
  IF problem IS NULL THEN
    SELECT format('claim.%s is not known; claim has exclude and labels', left(k, 40)) INTO problem
    FROM json_object_keys(claim) k WHERE k NOT IN ('exclude', 'labels') LIMIT 1;
  END IF;
  problem := coalesce(problem, CASE
    WHEN json_typeof(names) <> 'array' THEN 'claim.exclude must be an array'
    WHEN json_typeof(labels) <> 'object' THEN 'claim.labels must be an object'
    WHEN json_array_length(names) > 20 THEN format('claim.exclude has %s names; the limit is 20', json_array_length(names))
    WHEN coalesce(json_array_length(names), 0) = 0 AND NOT EXISTS (SELECT FROM json_object_keys(labels))
      THEN 'claim needs exclude or labels' END);
  IF problem IS NULL AND names IS NOT NULL THEN
    SELECT 'claim.exclude must have strings of 1 to 255 bytes without control characters' INTO problem
    FROM json_array_elements(names) e WHERE json_typeof(e) <> 'string' OR octet_length(e #>> '{}') NOT BETWEEN 1 AND 255
      OR e #>> '{}' ~ control LIMIT 1;
  END IF;
  IF problem IS NULL AND labels IS NOT NULL THEN
    SELECT CASE WHEN count(*) > 16 THEN format('claim.labels has %s labels; the limit is 16', count(*))
      WHEN count(DISTINCT k) < count(*) THEN 'claim.labels has a name twice'
      WHEN NOT bool_and(octet_length(k) <= 40 AND k COLLATE "C" ~ word)
        THEN 'claim.labels must have names of up to 40 letters, digits and _ . : / -, which begin with a letter or digit'
      WHEN NOT bool_and(json_typeof(v) = 'string' AND octet_length(v #>> '{}') BETWEEN 1 AND 64 AND v #>> '{}' !~ control)
        THEN 'claim.labels must have strings of 1 to 64 bytes without control characters' END INTO problem
    FROM json_each(labels) AS m (k, v);
  END IF;
  IF problem IS NULL AND submit_claim_bytes(claim) > 3072 THEN
    problem := format('claim has %s bytes; the limit is 3072', submit_claim_bytes(claim));
  END IF;
  RETURN CASE WHEN problem IS NOT NULL THEN ARRAY['invalid_argument', problem, 'claim'] END;
EXCEPTION WHEN untranslatable_character THEN
  RETURN ARRAY['invalid_argument', 'claim must be without NUL', 'claim'];
END $$;

-- submit_task gets the parameter claim. The roles that may call it still may. Views that depend on the
-- function of before keep it, under another name.
DO $do$
DECLARE
  before regprocedure :=
    'submit_task(text,json,text,int,timestamptz,text,interval,json,text,json,json,boolean,text,text,text)'::regprocedure;
  roles  text[];
  role   text;
BEGIN
  SELECT array_agg(r.rolname) INTO roles FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
  WHERE p.oid = before AND a.privilege_type = 'EXECUTE' AND r.oid <> p.proowner;
  BEGIN
    EXECUTE format('DROP FUNCTION %s', before);
  EXCEPTION WHEN dependent_objects_still_exist THEN
    EXECUTE format('ALTER FUNCTION %s RENAME TO submit_task_37', before);
    CREATE OR REPLACE FUNCTION submit_task_37(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL,
      run_at timestamptz DEFAULT NULL, flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL,
      context_from text DEFAULT NULL, on_final json DEFAULT NULL, labels json DEFAULT NULL, key_until_final boolean DEFAULT NULL,
      on_conflict text DEFAULT NULL, start_by text DEFAULT NULL, end_by text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
      RETURN submit_task(type, context, key, priority, run_at, flow_key, key_window, depends_on, context_from, on_final, labels,
        key_until_final, on_conflict, start_by, end_by);
    END $$;
  END;
  EXECUTE $create$
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL, context_from text DEFAULT NULL,
  on_final json DEFAULT NULL, labels json DEFAULT NULL, key_until_final boolean DEFAULT NULL, on_conflict text DEFAULT NULL,
  start_by text DEFAULT NULL, end_by text DEFAULT NULL, claim json DEFAULT NULL) RETURNS text
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
  due     timestamptz;
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
    late := submit_check_lifetime(start_by, end_by, run_at);
    refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
      ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    IF claim IS NOT NULL THEN
      late := submit_check_claim(claim);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
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
    ELSIF claim IS NOT NULL AND NOT (place.spec -> 'stages')::jsonb @> '[{"mode": "claim"}]' THEN
      refusal := ARRAY['invalid_argument', format('claim needs a stage of mode claim, and %s has none', type), 'claim'];
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
    due := CASE WHEN run_at > now THEN run_at ELSE now END;
    options := nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key,
      'depends_on', edges, 'context_from', nullif(context_from, ''),
      'lifetime', submit_lifetime(place.spec, start_by, end_by, due), 'on_final', CASE WHEN on_final IS NOT NULL THEN
        json_build_object('url', on_final ->> 'url', 'on', on_final -> 'on', 'target', on_final ->> 'target') END,
      'user', labels -> 'user', 'tags', labels -> 'tags', 'metadata', labels -> 'metadata', 'trace', labels -> 'trace',
      'claim', submit_claim_rules(claim)))::text, '{}')::json;
    IF place.spec -> 'flow' IS NULL THEN
      flow_key := NULL;
    ELSIF place.spec #> '{flow,fair}' IS NOT NULL THEN
      flow_key := coalesce(flow_key, '');
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
    PERFORM submit_expiry(place.spec, place.type_number, number, options -> 'lifetime', due);
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

REVOKE ALL ON FUNCTION submit_given, submit_claim_rules, submit_claim_bytes, submit_check_claim FROM PUBLIC;

-- +goose StatementEnd
