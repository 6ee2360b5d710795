-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- key is the idempotency key of the task that waits, by which others may wait for it. wait_for is how
-- long it waits, from when the edge opened.
ALTER TABLE edges ADD COLUMN key text, ADD COLUMN wait_for interval;

-- +goose StatementBegin
-- submit_number returns the number of a task id such as resize.1.7; null: it is none.
CREATE FUNCTION submit_number(task text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN task COLLATE "C" ~ '^[a-z][a-z0-9_-]{0,39}[.][1-9][0-9]{0,6}[.][1-9][0-9]{0,12}$' THEN
    CASE WHEN split_part(task, '.', 2)::bigint < 1 << 22 AND split_part(task, '.', 3)::bigint < 1::bigint << 40
      THEN (split_part(task, '.', 2)::bigint << 40) + split_part(task, '.', 3)::bigint END END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_seconds returns the seconds of a duration such as 1h30m; null: it is none.
CREATE FUNCTION submit_seconds(duration text) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN duration = '0' THEN 0
    WHEN length(duration) <= 40 AND duration ~ '^-?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|ms|s|m|h))+$' THEN
      CASE WHEN duration LIKE '-%' THEN -1 ELSE 1 END * (
        SELECT sum(m[1]::numeric * CASE m[2] WHEN 'h' THEN 3600 WHEN 'm' THEN 60 WHEN 's' THEN 1 WHEN 'ms' THEN 0.001
          WHEN 'us' THEN 0.000001 ELSE 0.000000001 END)
        FROM regexp_matches(duration, '([0-9.]+)(ns|us|ms|s|m|h)', 'g') m)
  END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_check_edge returns what the API would refuse in one entry of depends_on, in its words.
CREATE FUNCTION submit_check_edge(edge json) RETURNS TABLE (field text, what text)
LANGUAGE plpgsql AS $$
DECLARE
  task    text    := edge ->> 'task';
  name    text    := coalesce(edge ->> 'type', '');
  own     text    := coalesce(edge ->> 'key', '');
  failure text    := coalesce(edge ->> 'on_failure', '');
  wait    text    := edge ->> 'wait_for';
  seconds numeric := submit_seconds(wait);
BEGIN
  IF json_typeof(edge) <> 'object' THEN
    RETURN QUERY VALUES ('', 'must be an object');
    RETURN;
  END IF;
  RETURN QUERY SELECT '.' || left(f.k, 40),
    CASE WHEN f.k IN ('task', 'type', 'key', 'on_failure', 'wait_for') THEN 'must be a string' ELSE 'is not a known field' END
  FROM json_each(edge) AS f (k, v)
  WHERE f.k NOT IN ('task', 'type', 'key', 'on_failure', 'wait_for') OR json_typeof(f.v) <> 'string';
  IF FOUND THEN
    RETURN;
  ELSIF task IS NOT NULL AND submit_number(task) IS NULL THEN
    RETURN QUERY VALUES ('.task', 'id must look like thumbnails.1.42 (type.position.number)');
    RETURN;
  END IF;
  RETURN QUERY SELECT p.field, p.what FROM (VALUES
    (1, '.task', CASE
      WHEN task IS NOT NULL AND (name <> '' OR own <> '') THEN 'excludes type and key'
      WHEN task IS NULL AND name = '' THEN 'is required, or type and key' END),
    (2, '.key', CASE
      WHEN task IS NULL AND name <> '' AND own = '' THEN 'is required with type'
      WHEN octet_length(own) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(own)) END),
    (3, '.type', CASE
      WHEN octet_length(name) > 40 THEN format('is %s characters long; the limit is 40', octet_length(name))
      WHEN name <> '' AND name COLLATE "C" !~ '^[a-z]' THEN 'must start with a lower-case letter'
      WHEN name <> '' AND name COLLATE "C" !~ '^[a-z0-9_-]+$' THEN 'may hold lower-case letters, digits, - and _ only' END),
    (4, '.on_failure', CASE WHEN failure NOT IN ('', 'fail', 'cancel', 'run')
      THEN format('is "%s"; it must be fail, cancel or run', left(failure, 40)) END),
    (5, '.wait_for', CASE
      WHEN wait IS NOT NULL AND seconds IS NULL
        THEN format('is "%s"; it must be: a Go-style duration, such as 30s or 1h30m', left(wait, 40))
      WHEN seconds NOT BETWEEN 0 AND 31536000
        THEN format('is %s; it must be up to 8760h0m0s (a year)', submit_duration(seconds)) END)
  ) AS p (place, field, what) WHERE p.what IS NOT NULL ORDER BY p.place;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_check_edges returns the refusal of a depends_on and context_from that the API would refuse.
CREATE FUNCTION submit_check_edges(depends_on json, context_from text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  entries int;
  refusal text[];
BEGIN
  IF json_typeof(depends_on) <> 'array' THEN
    RETURN ARRAY['invalid_argument', 'depends_on must be an array of 0 to 100 entries, each an object', 'depends_on'];
  END IF;
  entries := coalesce(json_array_length(depends_on), 0);
  IF entries > 100 THEN
    RETURN ARRAY['invalid_argument', format('depends_on has %s entries; the limit is 100', entries), 'depends_on'];
  END IF;
  SELECT ARRAY['invalid_argument', string_agg(p.field || ' ' || p.what, '; ' ORDER BY p.i), (array_agg(p.field ORDER BY p.i))[1]]
  INTO refusal FROM (
    SELECT row_number() OVER () AS i, q.field, q.what FROM (
      SELECT format('depends_on[%s]', u.i - 1) || c.field, c.what
      FROM json_array_elements(depends_on) WITH ORDINALITY AS u (e, i), submit_check_edge(u.e) c
      UNION ALL
      SELECT 'context_from', CASE WHEN context_from <> 'dependencies'
        THEN format('is "%s"; it must be dependencies', left(context_from, 40)) ELSE 'needs depends_on' END
      WHERE context_from <> 'dependencies' OR context_from <> '' AND entries = 0) AS q (field, what)) p
  HAVING count(*) > 0;
  RETURN refusal;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_exists reports whether a task exists. Its roll may be dropped at any time.
CREATE FUNCTION submit_exists(table_set text, type_number int, number bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  it_does boolean;
BEGIN
  EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE type = $1 AND id = $2)',
    submit_table('task', table_set, (number >> 40)::int)) INTO it_does USING type_number, number;
  RETURN it_does;
EXCEPTION WHEN undefined_table THEN
  RETURN false;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_above returns how many tasks wait for a key, one after the other: a task that waits for the
-- key, one that waits for that task, and so on. It reads at most 100,000 edges, so it may be more.
CREATE FUNCTION submit_above(own_type int, own_id bigint, own_key text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  depth int      := 0;
  seen  int      := 0;
  types int[]    := ARRAY[own_type];
  ids   bigint[] := ARRAY[NULL::bigint];
  keys  text[]   := ARRAY[own_key];
BEGIN
  WHILE depth <= 100 AND seen < 100000 LOOP
    SELECT array_agg(l.type), array_agg(l.id), array_agg(l.key) INTO types, ids, keys FROM (
      SELECT DISTINCT o.type, o.id, o.key FROM (
        SELECT e.type, e.id, e.key FROM unnest(types, ids) AS u (type, id)
        JOIN edges e ON e.on_type = u.type AND e.on_id = ANY (ARRAY[u.id]) AND e.status IS NULL
        WHERE NOT (e.type = own_type AND e.id = own_id)
          AND EXISTS (SELECT FROM wait w WHERE w.type = e.type AND w.id = e.id AND w.reason = 'dependencies')
        UNION ALL
        SELECT e.type, e.id, e.key FROM unnest(types, keys) AS u (type, key)
        JOIN edges e ON e.on_type = u.type AND e.on_key = ANY (ARRAY[u.key]) AND e.on_id IS NULL AND e.status IS NULL
        WHERE NOT (e.type = own_type AND e.id = own_id)
          AND EXISTS (SELECT FROM wait w WHERE w.type = e.type AND w.id = e.id AND w.reason = 'dependencies')
        LIMIT 100000 - seen) o) l;
    EXIT WHEN ids IS NULL;
    depth := depth + 1;
    seen := seen + cardinality(ids);
  END LOOP;
  RETURN depth;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_chain returns what is wrong with the open edges that lead on from a new task by way of the
-- tasks (types, ids) that it waits for; null: nothing. depth is the length of the chain as far as these.
CREATE FUNCTION submit_chain(own_type int, own_id bigint, depth int, types int[], ids bigint[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  seen int := 0;
  more int;
BEGIN
  LOOP
    IF depth > 100 THEN
      RETURN 'makes a chain of more than 100 dependencies';
    ELSIF EXISTS (SELECT FROM unnest(types, ids) AS u (type, id) WHERE u.type = own_type AND u.id = own_id) THEN
      RETURN 'makes a cycle: that task waits for this one';
    END IF;
    SELECT array_agg(l.type), array_agg(l.id), sum(l.edges) INTO types, ids, more FROM (
      SELECT o.type, o.id, count(*) AS edges FROM (
        SELECT e.on_type AS type, coalesce(e.on_id, k.id) AS id
        FROM unnest(types, ids) AS u (type, id)
        JOIN edges e ON e.type = u.type AND e.id = ANY (ARRAY[u.id]) AND e.status IS NULL
        LEFT JOIN task_types y ON y.number = e.on_type AND e.on_id IS NULL
        LEFT JOIN idempotency_keys k ON k.type = y.name AND k.key = e.on_key
        WHERE coalesce(e.on_id, k.id) IS NOT NULL AND EXISTS (
          SELECT FROM wait w WHERE w.type = e.type AND w.id = e.id AND w.reason = 'dependencies') LIMIT 100001 - seen) o
      GROUP BY 1, 2) l;
    EXIT WHEN ids IS NULL;
    seen := seen + more;
    IF seen > 100000 THEN
      RETURN 'leads to too many tasks that wait; the limit is 100000';
    END IF;
    depth := depth + 1;
  END LOOP;
  RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_edges adds the edges of a new task, and returns the refusal of the first that can't be. It
-- keeps the types from being deleted until the transaction ends. It doesn't see the edges of other
-- open transactions: a node looks for cycles again after the commit.
CREATE FUNCTION submit_edges(own_type int, own_id bigint, own_key text, depends_on json, now timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  edge    record;
  other   record;
  above   int;
  problem text;
BEGIN
  FOR edge IN
    SELECT u.i - 1 AS n, u.e ->> 'task' AS task, submit_number(u.e ->> 'task') AS id, u.e ->> 'key' AS key,
      coalesce(split_part(u.e ->> 'task', '.', 1), u.e ->> 'type') AS type,
      coalesce(nullif(u.e ->> 'on_failure', ''), 'fail') AS on_failure,
      nullif(make_interval(secs => submit_seconds(u.e ->> 'wait_for')::float8), interval '0') AS wait_for
    FROM json_array_elements(depends_on) WITH ORDINALITY AS u (e, i)
  LOOP
    SELECT t.number, CASE WHEN edge.id >> 40 < t.from_pos THEN t.earlier_set ELSE t.table_set END AS table_set,
      coalesce(b.first_pos, s.first_pos)::bigint << 40 AS first INTO other
    FROM task_types t JOIN table_sets s ON s.name = t.table_set LEFT JOIN table_sets b ON b.name = t.earlier_set
    WHERE t.name = edge.type FOR KEY SHARE OF t;
    problem := CASE
      WHEN other.number IS NULL THEN format('names the task type %s, which doesn''t exist', edge.type)
      WHEN other.number = own_type AND (edge.id = own_id OR edge.key = own_key) THEN 'is the task itself'
      WHEN edge.id IS NOT NULL AND NOT submit_exists(other.table_set, other.number, edge.id)
        THEN format('names the task %s, which doesn''t exist', edge.task)
    END;
    IF problem IS NOT NULL THEN
      RETURN ARRAY['invalid_dependency', format('depends_on[%s] %s', edge.n, problem), format('depends_on[%s]', edge.n)];
    END IF;
    INSERT INTO edges (type, id, n, on_type, on_id, on_key, on_failure, until, key, wait_for)
    VALUES (own_type, own_id, edge.n, other.number, coalesce(edge.id, (SELECT k.id FROM idempotency_keys k
      WHERE k.type = edge.type AND k.key = edge.key AND k.expires_at > submit_edges.now AND k.id >= other.first)),
      edge.key, edge.on_failure, submit_edges.now + edge.wait_for, own_key, edge.wait_for);
  END LOOP;

  above := CASE WHEN own_key IS NULL THEN 0 ELSE submit_above(own_type, own_id, own_key) END;
  SELECT submit_chain(own_type, own_id, above + 1, array_agg(e.on_type), array_agg(e.on_id)) INTO problem
  FROM edges e WHERE e.type = own_type AND e.id = own_id;
  IF problem IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT e.n, c.what INTO edge
  FROM edges e, LATERAL submit_chain(own_type, own_id, above + 1, ARRAY[e.on_type], ARRAY[e.on_id]) AS c (what)
  WHERE e.type = own_type AND e.id = own_id AND c.what IS NOT NULL ORDER BY e.n LIMIT 1;
  RETURN ARRAY['invalid_dependency', format('depends_on[%s] %s', coalesce(edge.n, 0), coalesce(edge.what, problem)),
    format('depends_on[%s]', coalesce(edge.n, 0))];
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_wait is submit_write for a task that waits for others: a node looks at its edges.
CREATE FUNCTION submit_wait(table_set text, type_number int, type text, number bigint, now timestamptz,
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

-- +goose StatementBegin
-- submit_sqlstate returns the SQLSTATE of a refusal, by its code.
CREATE OR REPLACE FUNCTION submit_sqlstate(code text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE code
    WHEN 'invalid_argument'   THEN '22023' -- invalid_parameter_value
    WHEN 'invalid_dependency' THEN '23503' -- foreign_key_violation
    WHEN 'too_large'          THEN '54000' -- program_limit_exceeded
    WHEN 'not_found'          THEN '42704' -- undefined_object
    WHEN 'key_reused'         THEN '23505' -- unique_violation
    WHEN 'quota_exceeded'     THEN '53400' -- configuration_limit_exceeded
    WHEN 'tenant_suspended'   THEN '55000' -- object_not_in_prerequisite_state
    WHEN 'conflict'           THEN '40001' -- serialization_failure
  END
$$;
-- +goose StatementEnd

ALTER FUNCTION submit_task RENAME TO submit_task_before;

-- +goose StatementBegin
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL, context_from text DEFAULT NULL) RETURNS text
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

    edges := nullif(json_array_length(depends_on), 0);
    orders := CASE WHEN run_at > now THEN run_at
      ELSE now - make_interval(secs => coalesce(priority, (place.spec #>> '{stages,0,priority}')::int, 0)) END;
    options := nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key,
      'depends_on', edges, 'context_from', nullif(context_from, '')))::text, '{}')::json;
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
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- The new function has the grants of the old one.
DO $$
DECLARE
  old record;
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
  FOR old IN
    SELECT a.grantee::regrole AS role, a.is_grantable FROM pg_proc p, aclexplode(p.proacl) a
    WHERE p.oid = 'submit_task_before'::regproc AND a.grantee <> p.proowner AND a.grantee <> 0
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION submit_task TO %s', old.role)
      || CASE WHEN old.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END;
  END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION submit_task_before;

-- +goose Down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);
ALTER FUNCTION submit_task RENAME TO submit_task_before;

-- +goose StatementBegin
-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
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
-- The old function has the grants of the new one.
DO $$
DECLARE
  old record;
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
  FOR old IN
    SELECT a.grantee::regrole AS role, a.is_grantable FROM pg_proc p, aclexplode(p.proacl) a
    WHERE p.oid = 'submit_task_before'::regproc AND a.grantee <> p.proowner AND a.grantee <> 0
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION submit_task TO %s', old.role)
      || CASE WHEN old.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END;
  END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION submit_task_before, submit_wait, submit_edges, submit_chain, submit_above, submit_exists, submit_check_edges,
  submit_check_edge, submit_seconds, submit_number;
ALTER TABLE edges DROP COLUMN key, DROP COLUMN wait_for;
