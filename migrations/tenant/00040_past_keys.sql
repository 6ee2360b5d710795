-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- The idempotency keys whose windows are over, of the tasks that are kept of types that others depend
-- on: dependents find these tasks by them. A later task with the key replaces an earlier one.
CREATE TABLE past_keys (
  type int    NOT NULL,
  key  text   NOT NULL,
  id   bigint NOT NULL,
  PRIMARY KEY (type, key)
);
CREATE INDEX ON past_keys (type, id);

-- +goose StatementBegin
-- submit_edges adds the edges of a new task, and returns the refusal of the first that can't be. It
-- keeps the types from being deleted until the transaction ends. It doesn't see the edges of other
-- open transactions: a node looks for cycles again after the commit.
CREATE OR REPLACE FUNCTION submit_edges(own_type int, own_id bigint, own_key text, depends_on json, now timestamptz) RETURNS text[]
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
      coalesce(nullif(make_interval(secs => submit_seconds(u.e ->> 'wait_for')::float8), interval '0'),
        CASE WHEN u.e ->> 'task' IS NULL THEN interval '168:00' END) AS wait_for
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

-- +goose Down
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- +goose StatementBegin
-- submit_edges adds the edges of a new task, and returns the refusal of the first that can't be. It
-- keeps the types from being deleted until the transaction ends. It doesn't see the edges of other
-- open transactions: a node looks for cycles again after the commit.
CREATE OR REPLACE FUNCTION submit_edges(own_type int, own_id bigint, own_key text, depends_on json, now timestamptz) RETURNS text[]
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

DROP TABLE past_keys;
