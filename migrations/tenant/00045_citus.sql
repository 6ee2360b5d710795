-- +goose Up
-- +goose StatementBegin

-- table_size returns the bytes of a table, or with whole of its indexes and long values, too; null:
-- there is no such table. Where Citus has distributed it, Postgres knows only an empty table here.
CREATE FUNCTION table_size(relation regclass, whole boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  size bigint;
BEGIN
  IF to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL THEN
    SELECT CASE WHEN whole THEN citus_total_relation_size(relation) ELSE citus_relation_size(relation) END
    INTO size FROM pg_dist_partition WHERE logicalrelid = relation;
    IF FOUND THEN
      RETURN size;
    END IF;
  END IF;
  RETURN CASE WHEN whole THEN pg_total_relation_size(relation) ELSE pg_relation_size(relation) END;
END $$;

-- A history is that of the server which has the rows, so each statement asks for it beside a row of
-- the table. It stays the same during a statement. numbering is compared with the history of itself
-- from now on, instead of that of rolls.
ALTER FUNCTION history(oid) STABLE;
UPDATE numbering SET history = here.numbering
FROM (SELECT history(tableoid) AS numbering, history('rolls'::regclass) AS rolls FROM numbering) here
WHERE history = here.rolls;

-- number_from has numbers begin somewhere else, those of submit_task too. In the history that was
-- lost they began at 1, or at another random place: the two meet in 1 of 10,000 cases if both rolls
-- get ten million tasks. 2^36 numbers are more than a roll ever has.
CREATE OR REPLACE FUNCTION number_from(number bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  present text;
BEGIN
  SELECT history(n.tableoid) INTO present FROM numbering n;
  UPDATE numbering SET history = present, first_number = number;
  PERFORM setval('submit_numbers', number, false);
END $$;

-- open_roll writes the row of a new roll of a table set.
CREATE OR REPLACE FUNCTION open_roll(table_set text, roll int, now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  present text;
  first   bigint;
BEGIN
  PERFORM FROM numbering n WHERE n.history <> history(n.tableoid) FOR UPDATE;
  IF FOUND THEN
    PERFORM number_from(random_number());
  END IF;
  SELECT n.first_number INTO first FROM numbering n;
  INSERT INTO rolls (table_set, position, opened_at, history, next_number)
  VALUES (open_roll.table_set, open_roll.roll, open_roll.now, '', first);
  SELECT history(r.tableoid) INTO present FROM rolls r
  WHERE r.table_set = open_roll.table_set AND r.position = open_roll.roll;
  UPDATE rolls r SET history = present
  WHERE r.table_set = open_roll.table_set AND r.position = open_roll.roll;
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
      AND r.history <> history(r.tableoid);
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

-- submit_edges adds the edges of a new task, and returns the refusal of the first that can't be. It
-- keeps the types and the tasks from being deleted until the transaction ends. It doesn't see the
-- edges of other open transactions: a node looks for cycles again after the commit.
CREATE OR REPLACE FUNCTION submit_edges(own_type int, own_id bigint, own_key text, depends_on json, now timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  edge    record;
  other   record;
  needed  bigint;
  kept    boolean;
  above   int;
  types   int[];
  ids     bigint[];
  n       int;
  what    text;
  problem text;
BEGIN
  FOR edge IN
    SELECT u.i - 1 AS n, u.e ->> 'task' AS task, submit_number(u.e ->> 'task') AS id, u.e ->> 'key' AS key,
      coalesce(split_part(u.e ->> 'task', '.', 1), u.e ->> 'type') AS type,
      coalesce(nullif(u.e ->> 'on_failure', ''), 'fail') AS on_failure,
      coalesce(nullif(make_interval(secs => submit_seconds(u.e ->> 'wait_for')::float8), interval '0'),
        CASE WHEN u.e ->> 'task' IS NULL THEN interval '168:00' END) AS wait_for
    FROM json_array_elements(depends_on) WITH ORDINALITY AS u (e, i)
  LOOP
    SELECT t.number, t.from_pos, t.earlier_set, t.table_set,
      coalesce(b.first_pos, s.first_pos)::bigint << 40 AS first INTO other
    FROM task_types t JOIN table_sets s ON s.name = t.table_set LEFT JOIN table_sets b ON b.name = t.earlier_set
    WHERE t.name = edge.type FOR KEY SHARE OF t;
    needed := coalesce(edge.id, (SELECT k.id FROM idempotency_keys k
      WHERE k.type = edge.type AND k.key = edge.key AND k.expires_at > submit_edges.now AND k.id >= other.first));
    kept := submit_kept(CASE WHEN needed >> 40 < other.from_pos THEN other.earlier_set ELSE other.table_set END,
      other.number, needed);
    problem := CASE
      WHEN other.number IS NULL THEN format('names the task type %s, which doesn''t exist', edge.type)
      WHEN other.number = own_type AND (edge.id = own_id OR edge.key = own_key) THEN 'is the task itself'
      WHEN edge.id IS NOT NULL AND NOT kept
        THEN format('names the task %s, which doesn''t exist', edge.task)
    END;
    IF problem IS NOT NULL THEN
      RETURN ARRAY['invalid_dependency', format('depends_on[%s] %s', edge.n, problem), format('depends_on[%s]', edge.n)];
    END IF;
    INSERT INTO edges (type, id, n, on_type, on_id, on_key, on_failure, until, key, wait_for)
    VALUES (own_type, own_id, edge.n, other.number, CASE WHEN kept THEN needed END, edge.key, edge.on_failure,
      submit_edges.now + edge.wait_for, own_key, edge.wait_for);
  END LOOP;

  above := CASE WHEN own_key IS NULL THEN 0 ELSE submit_above(own_type, own_id, own_key) END;
  -- Within a query of a table, Citus would run submit_chain elsewhere, without our names.
  SELECT array_agg(e.on_type), array_agg(e.on_id) INTO types, ids
  FROM edges e WHERE e.type = own_type AND e.id = own_id;
  problem := submit_chain(own_type, own_id, above + 1, types, ids);
  IF problem IS NULL THEN
    RETURN NULL;
  END IF;
  FOR edge IN SELECT e.n, e.on_type, e.on_id FROM edges e WHERE e.type = own_type AND e.id = own_id ORDER BY e.n LOOP
    what := submit_chain(own_type, own_id, above + 1, ARRAY[edge.on_type], ARRAY[edge.on_id]);
    IF what IS NOT NULL THEN
      n := edge.n;
      EXIT;
    END IF;
  END LOOP;
  RETURN ARRAY['invalid_dependency', format('depends_on[%s] %s', coalesce(n, 0), coalesce(what, problem)),
    format('depends_on[%s]', coalesce(n, 0))];
END $$;

REVOKE ALL ON FUNCTION table_size FROM PUBLIC;

-- +goose StatementEnd
