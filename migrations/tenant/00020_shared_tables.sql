-- +goose NO TRANSACTION
-- +goose Up

-- The tables of the types there are get the column type. Their leases and waiting tasks move to the
-- tables of all types; all else stays where it is until the type's next roll. Each type is a
-- transaction of its own, as one transaction can't lock thousands of tables.
-- +goose StatementBegin
DO $$
DECLARE
  t    record;
  kind text;
BEGIN
  FOR t IN SELECT name, number FROM task_types WHERE to_regclass(format('%I.%I', current_schema(), 'lease_' || name)) IS NOT NULL
  LOOP
    FOR kind IN SELECT format('%I', k || '_' || t.name || '_' || r.position) FROM rolls r, unnest(ARRAY['task', 'journal', 'ready']) k
      WHERE r.table_set = t.name AND NOT (k = 'ready' AND r.ready_dropped)
    LOOP
      EXECUTE format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS type int NOT NULL DEFAULT %s', kind, t.number);
    END LOOP;
    EXECUTE format('INSERT INTO lease (type, id, seq, stage, attempt, node, leased_at, until, progress, note, key, endpoint)
      SELECT $1, id, seq, stage, attempt, node, leased_at, until, progress, note, key, endpoint FROM %I', 'lease_' || t.name)
      USING t.number;
    EXECUTE format('INSERT INTO wait (type, id, seq, stage, attempt, order_time, reason, key, until, since)
      SELECT $1, id, seq, stage, attempt, order_time, reason, key, until, since FROM %I', 'wait_' || t.name)
      USING t.number;
    EXECUTE format('DROP TABLE %I, %I', 'lease_' || t.name, 'wait_' || t.name);
    COMMIT;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
SELECT 1;
