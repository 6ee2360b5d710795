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
DO $do$
DECLARE
  submit   regprocedure := (SELECT p.oid FROM pg_proc p
    WHERE p.pronamespace = current_schema()::regnamespace AND p.proname = 'submit_task');
  old      text := pg_get_functiondef(submit);
  addition text := replace(old, $old$
      flow_key := NULL;
    END IF;$old$, $new$
      flow_key := NULL;
    ELSIF place.spec #> '{flow,fair}' IS NOT NULL THEN
      flow_key := coalesce(flow_key, '');
    END IF;$new$);
BEGIN
  IF addition = old THEN
    RAISE EXCEPTION 'submit_task has no line that sets its flow key';
  END IF;
  EXECUTE addition;
END $do$;

-- +goose StatementEnd
