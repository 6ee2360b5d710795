-- +goose Up
-- +goose StatementBegin

-- Whose turn it is in a type with fair flow keys: the key that started tasks last, and how many more
-- it may start before the next one. The key '' are the tasks without one. A lost row only begins the
-- turns anew.
CREATE TABLE flow_turns (
  type      int  NOT NULL PRIMARY KEY REFERENCES task_types (number) ON DELETE CASCADE,
  key       text NOT NULL,
  remaining int  NOT NULL
) WITH (fillfactor = 10, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);

-- Tasks of fair types that wait for their stage come back in turn. Rows without a key are not in it.
CREATE INDEX ON wait (type, stage, key, order_time, id)
  WHERE until = 'infinity' AND reason <> 'flow_key' AND key IS NOT NULL;

-- In a fair type, the row of a task without a flow key has the key ''.
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
    RETURN submit_id(type, number);
  END trying;
  RAISE EXCEPTION USING MESSAGE = refusal[2], DETAIL = refusal[1], COLUMN = refusal[3], ERRCODE = submit_sqlstate(refusal[1]);
END $$;

-- +goose StatementEnd
