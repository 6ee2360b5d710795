-- +goose Up

-- Nothing is found by the time of journal rows, but each of them cost half a microsecond for it.
-- +goose StatementBegin
DO $$
DECLARE
  i regclass;
BEGIN
  FOR i IN SELECT x.indexrelid::regclass FROM rolls r
    JOIN pg_index x ON x.indrelid = format('%I', 'journal_' || r.type || '_' || r.position)::regclass
    JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'brin' LOOP
    EXECUTE format('DROP INDEX %s', i);
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DO $$
DECLARE
  journal text;
BEGIN
  FOR journal IN SELECT format('%I', 'journal_' || type || '_' || position) FROM rolls LOOP
    EXECUTE format('CREATE INDEX ON %s USING brin (at)', journal);
  END LOOP;
END $$;
-- +goose StatementEnd
