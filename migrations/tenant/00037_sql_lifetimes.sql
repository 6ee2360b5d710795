-- +goose Up
-- +goose StatementBegin

-- submit_time returns the time that a text such as 2026-01-31T12:00:00Z stands for; null: it is none.
CREATE FUNCTION submit_time(at text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN CASE WHEN at ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$'
    THEN at::timestamptz END;
EXCEPTION WHEN data_exception THEN
  RETURN NULL; -- there is no such day, or hour
END $$;

-- submit_check_deadline returns what is wrong with a start_by or an end_by of a task that is due at a
-- time.
CREATE FUNCTION submit_check_deadline(deadline text, due timestamptz) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  seconds numeric := submit_seconds(deadline);
  at      timestamptz := submit_time(deadline);
BEGIN
  RETURN CASE
    WHEN deadline IS NULL OR deadline = 'none' THEN NULL
    WHEN at IS NULL AND seconds IS NULL THEN format('must be a time such as "2026-01-31T12:00:00Z", a duration such as "30m", or '
      || '"none", not "%s"', left(deadline, 40))
    WHEN seconds = 0 THEN 'is 0s; it must be longer, or "none"'
    WHEN seconds NOT BETWEEN 0 AND 315360000
      THEN format('is %s; it must be more than 0s and up to 87600h0m0s (10 years)', submit_duration(seconds))
    WHEN extract(year FROM at AT TIME ZONE 'UTC') NOT BETWEEN 1970 AND 2999
      THEN format('is in the year %s; it must be in 1970 to 2999', extract(year FROM at AT TIME ZONE 'UTC'))
    WHEN at < due THEN format('is %s, which is before the task is due', deadline)
  END;
END $$;

-- submit_check_lifetime returns the refusal of a start_by and an end_by.
CREATE FUNCTION submit_check_lifetime(start_by text, end_by text, run_at timestamptz) RETURNS text[]
LANGUAGE sql STABLE AS $$
  SELECT ARRAY['invalid_argument', string_agg(p.field || ' ' || p.what, '; ' ORDER BY p.i), (array_agg(p.field ORDER BY p.i))[1]]
  FROM (SELECT 1 AS i, 'start_by' AS field, submit_check_deadline(start_by, run_at) AS what
    UNION ALL SELECT 2, 'end_by', submit_check_deadline(end_by, run_at)) AS p
  WHERE p.what IS NOT NULL HAVING count(*) > 0
$$;

-- submit_deadline returns when a deadline of a task comes that is due at a time; null: never. within is
-- the duration that it is, if it is one.
CREATE FUNCTION submit_deadline(deadline text, due timestamptz, OUT at timestamptz, OUT within text)
LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN deadline = 'none' THEN NULL
      ELSE coalesce(submit_time(deadline), due + make_interval(secs => submit_seconds(deadline)::float8)) END,
    CASE WHEN submit_seconds(deadline) IS NOT NULL THEN deadline END
$$;

-- submit_lifetime returns the lifetime of a task that is due at a time as its options have it; null: it
-- may take any time. What it doesn't say its type does.
CREATE FUNCTION submit_lifetime(spec json, start_by text, end_by text, due timestamptz) RETURNS json
LANGUAGE sql STABLE AS $$
  SELECT nullif(json_strip_nulls(json_build_object(
    'start_by', to_char(s.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'end_by', to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    'start_within', s.within, 'end_within', e.within))::text, '{}')::json
  FROM submit_deadline(coalesce(start_by, spec ->> 'start_by'), due) s,
    submit_deadline(coalesce(end_by, spec ->> 'end_by'), due) e
$$;

-- submit_expiry writes when a task expires that was just submitted, and is due at a time.
CREATE FUNCTION submit_expiry(spec json, type_number int, number bigint, lifetime json, due timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  ends   timestamptz := (lifetime ->> 'end_by')::timestamptz;
  starts timestamptz := least((lifetime ->> 'start_by')::timestamptz,
    due + make_interval(secs => submit_seconds(spec #>> '{stages,0,start_by}')::float8));
BEGIN
  IF starts IS NOT NULL OR ends IS NOT NULL THEN
    INSERT INTO lifetimes (type, id, expires_at, start)
    VALUES (type_number, number, least(starts, ends), CASE WHEN ends IS NULL OR starts < ends THEN 0 END);
    PERFORM pg_stat_force_next_flush(); -- the job expire hears of it by the count of rows
  END IF;
END $$;

-- submit_task gets the parameters start_by and end_by. The roles that may call it still may. Views that
-- depend on the function of before keep it, under another name.
DO $do$
DECLARE
  before   regprocedure := 'submit_task(text,json,text,int,timestamptz,text,interval,json,text,json,json,boolean,text)'::regprocedure;
  addition text := pg_get_functiondef(before);
  change   text[];
  roles    text[];
  role     text;
BEGIN
  FOREACH change SLICE 1 IN ARRAY ARRAY[
    ['on_conflict text DEFAULT NULL::text)', 'on_conflict text DEFAULT NULL::text, start_by text DEFAULT NULL::text, '
      || 'end_by text DEFAULT NULL::text)'],
    ['  orders  timestamptz;
', '  orders  timestamptz;
  due     timestamptz;
'],
    ['    EXIT trying WHEN refusal IS NOT NULL;

    place := submit_place(type);', '    late := submit_check_lifetime(start_by, end_by, run_at);
    refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
      ELSE ARRAY[refusal[1], refusal[2] || ''; '' || late[2], refusal[3]] END;
    EXIT trying WHEN refusal IS NOT NULL;

    place := submit_place(type);'],
    ['    options := nullif(', '    due := CASE WHEN run_at > now THEN run_at ELSE now END;
    options := nullif('],
    ['''on_final'', CASE', '''lifetime'', submit_lifetime(place.spec, start_by, end_by, due), ''on_final'', CASE'],
    ['    RETURN submit_id(type, number);
  END trying;', '    PERFORM submit_expiry(place.spec, place.type_number, number, options -> ''lifetime'', due);
    RETURN submit_id(type, number);
  END trying;']] LOOP
    IF (length(addition) - length(replace(addition, change[1], ''))) <> length(change[1]) THEN
      RAISE EXCEPTION 'submit_task has not once: %', change[1];
    END IF;
    addition := replace(addition, change[1], change[2]);
  END LOOP;
  SELECT array_agg(r.rolname) INTO roles FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
  WHERE p.oid = before AND a.privilege_type = 'EXECUTE' AND r.oid <> p.proowner;
  BEGIN
    EXECUTE format('DROP FUNCTION %s', before);
  EXCEPTION WHEN dependent_objects_still_exist THEN
    EXECUTE format('ALTER FUNCTION %s RENAME TO submit_task_36', before);
    CREATE OR REPLACE FUNCTION submit_task_36(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL,
      run_at timestamptz DEFAULT NULL, flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL,
      context_from text DEFAULT NULL, on_final json DEFAULT NULL, labels json DEFAULT NULL, key_until_final boolean DEFAULT NULL,
      on_conflict text DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    BEGIN
      RETURN submit_task(type, context, key, priority, run_at, flow_key, key_window, depends_on, context_from, on_final, labels,
        key_until_final, on_conflict);
    END $$;
  END;
  EXECUTE addition;
  REVOKE ALL ON FUNCTION submit_task FROM PUBLIC;
  FOREACH role IN ARRAY coalesce(roles, '{}') LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION submit_task TO %I', role);
  END LOOP;
END $do$;

REVOKE ALL ON FUNCTION submit_time, submit_check_deadline, submit_check_lifetime, submit_deadline, submit_lifetime, submit_expiry
  FROM PUBLIC;

-- +goose StatementEnd
