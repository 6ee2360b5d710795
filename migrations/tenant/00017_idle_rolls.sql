-- +goose Up

-- idle_since: since when no task of the roll has been live, which is after the last event of
-- any; null while one may be. The retention counts from it. Of rolls that were cleared before,
-- it is taken from the end of their journals.
ALTER TABLE rolls ADD COLUMN idle_since timestamptz;

-- +goose StatementBegin
DO $$
DECLARE
  roll record;
  live boolean;
  last timestamptz;
BEGIN
  FOR roll IN SELECT type, position, position::bigint << 40 AS least, (position + 1)::bigint << 40 AS beyond, drained_at,
    format('%I', 'journal_' || type || '_' || position) AS journal FROM rolls WHERE ready_dropped
  LOOP
    EXECUTE (SELECT 'SELECT ' || string_agg(format('EXISTS (SELECT FROM %I WHERE id >= $1 AND id < $2)', token), ' OR ')
      FROM (SELECT 'lease_' || roll.type AS token UNION ALL SELECT 'wait_' || roll.type
        UNION ALL SELECT 'ready_' || r.type || '_' || r.position FROM rolls r WHERE r.type = roll.type AND NOT r.ready_dropped) t)
      INTO live USING roll.least, roll.beyond;
    CONTINUE WHEN live;
    EXECUTE format('SELECT max(at) FROM %s WHERE ctid >= format(''(%%s,0)'', greatest(0,
      pg_relation_size(%L::regclass) / current_setting(''block_size'')::bigint - 64))::tid', roll.journal, roll.journal) INTO last;
    UPDATE rolls SET idle_since = greatest(roll.drained_at, last) WHERE type = roll.type AND position = roll.position;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
ALTER TABLE rolls DROP COLUMN idle_since;
