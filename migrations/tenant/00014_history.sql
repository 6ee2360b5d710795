-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- +goose StatementBegin
-- history names the history of a table, as asyncflow.history does, which tenants don't see.
CREATE FUNCTION history(relation oid) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  cluster  text := '';
  timeline text := '';
BEGIN
  BEGIN
    SELECT system_identifier::text INTO cluster FROM pg_control_system();
  EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN NULL;
  END;
  BEGIN
    timeline := left(pg_walfile_name(pg_current_wal_lsn()), 8);
  EXCEPTION WHEN insufficient_privilege OR undefined_function OR feature_not_supported THEN NULL;
  END;
  RETURN format('%s.%s.%s', cluster, timeline, relation);
END $$;
-- +goose StatementEnd

-- In which history the last roll was opened, and where the numbers of its tasks begin: at 1, or in
-- another history than the first one far from there.
CREATE TABLE numbering (
  one          boolean PRIMARY KEY DEFAULT true CHECK (one),
  history      text    NOT NULL,
  first_number bigint  NOT NULL CHECK (first_number > 0)
);
INSERT INTO numbering (history, first_number) VALUES (history('rolls'::regclass), 1);

-- A roll hands out numbers in the history in which it was opened only.
ALTER TABLE rolls ADD COLUMN history text;
UPDATE rolls SET history = n.history FROM numbering n;
ALTER TABLE rolls ALTER COLUMN history SET NOT NULL;

-- +goose StatementBegin
-- number_from has numbers begin somewhere else, those of submit_task too. In the history that was
-- lost they began at 1, or at another random place: the two meet in 1 of 10,000 cases if both rolls
-- get ten million tasks. 2^36 numbers are more than a roll ever has.
CREATE FUNCTION number_from(number bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE numbering SET history = history('rolls'::regclass), first_number = number;
  PERFORM setval('submit_numbers', number, false);
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- random_number returns a place far from 1 and far from the end.
CREATE FUNCTION random_number() RETURNS bigint
LANGUAGE sql AS $$ SELECT (1::bigint << 36) + floor(random() * 3 * (1::bigint << 36))::bigint $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- open_roll writes the row of a new roll.
CREATE FUNCTION open_roll(type text, roll int, now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM FROM numbering n WHERE n.history <> history('rolls'::regclass) FOR UPDATE;
  IF FOUND THEN
    PERFORM number_from(random_number());
  END IF;
  INSERT INTO rolls (type, position, opened_at, history, next_number)
  SELECT open_roll.type, open_roll.roll, open_roll.now, n.history, n.first_number FROM numbering n;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
-- submit_roll returns the position of the type's open roll, and keeps it from being sealed
-- until the transaction ends; null when its tables are gone. What there is is looked up by
-- name, as a snapshot may be older than the roll: a roll is sealed after the next one was made,
-- and never while we hold it. The roll of the snapshot must be of this history; then all later
-- ones are: a history ends all transactions of the one before.
CREATE OR REPLACE FUNCTION submit_roll(type text, roll int) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
  PERFORM FROM rolls r WHERE r.type = submit_roll.type AND r.position = submit_roll.roll AND r.history <> history('rolls'::regclass);
  IF FOUND THEN
    PERFORM submit_refuse('conflict', 'the database was restored or has failed over, and no node of asyncflow has made new tables for '
      || type || ' yet; try it again');
  END IF;
  LOOP
    WHILE to_regclass(submit_table('task', type, roll + 1)) IS NOT NULL LOOP
      roll := roll + 1;
    END LOOP;
    BEGIN
      EXECUTE format('LOCK TABLE %s, %s IN ROW EXCLUSIVE MODE', submit_table('task', type, roll), submit_table('ready', type, roll));
    EXCEPTION WHEN undefined_table THEN
      RETURN NULL;
    END;
    IF to_regclass(submit_table('task', type, roll + 1)) IS NULL THEN
      RETURN roll;
    END IF;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
BEGIN
  EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
END $$;
-- +goose StatementEnd

-- +goose Down

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION submit_roll(type text, roll int) RETURNS int
LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    WHILE to_regclass(submit_table('task', type, roll + 1)) IS NOT NULL LOOP
      roll := roll + 1;
    END LOOP;
    BEGIN
      EXECUTE format('LOCK TABLE %s, %s IN ROW EXCLUSIVE MODE', submit_table('task', type, roll), submit_table('ready', type, roll));
    EXCEPTION WHEN undefined_table THEN
      RETURN NULL;
    END;
    IF to_regclass(submit_table('task', type, roll + 1)) IS NULL THEN
      RETURN roll;
    END IF;
  END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION open_roll, random_number, number_from;
ALTER TABLE rolls DROP COLUMN history;
DROP TABLE numbering;
DROP FUNCTION history;
