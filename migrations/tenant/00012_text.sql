-- +goose Up

-- Contexts and outputs are JSON that has been checked when it came in: as text, Postgres
-- doesn't read it once more for each row.
-- Long ones are compressed anew, as nodes have it.
SELECT set_config(name, 'lz4', true) FROM pg_settings
WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals) AND source = 'default';
-- +goose StatementBegin
DO $$
DECLARE
  r record;
BEGIN
  FOR r IN SELECT format('%I', 'task_' || type || '_' || position) AS task, format('%I', 'journal_' || type || '_' || position) AS journal FROM rolls LOOP
    EXECUTE format('ALTER TABLE %s ALTER COLUMN context TYPE text', r.task);
    EXECUTE format('ALTER TABLE %s ALTER COLUMN output TYPE text', r.journal);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
  r record;
BEGIN
  FOR r IN SELECT format('%I', 'task_' || type || '_' || position) AS task, format('%I', 'journal_' || type || '_' || position) AS journal FROM rolls LOOP
    EXECUTE format('ALTER TABLE %s ALTER COLUMN context TYPE json USING context::json', r.task);
    EXECUTE format('ALTER TABLE %s ALTER COLUMN output TYPE json USING output::json', r.journal);
  END LOOP;
END $$;
-- +goose StatementEnd
