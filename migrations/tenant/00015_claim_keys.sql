-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- +goose StatementBegin
-- claim_keys has keys stand for tasks, as far as they are free, one by one: it returns those that
-- another transaction has, and waits for each only as long as Postgres can. After so many of them
-- it returns all others too, unseen; so it begins at another one each time. It leaves
-- lock_timeout as short. A key whose task has a number below first, the least that is kept, is
-- free: the task was dropped with its roll.
CREATE FUNCTION claim_keys(type text, keys text[], ids bigint[], hashes bytea[], expiries timestamptz[], now timestamptz, first bigint, most int)
RETURNS SETOF text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  i    int;
  held int := 0;
BEGIN
  PERFORM set_config('lock_timeout', '1ms', true);
  FOR i IN SELECT n FROM generate_subscripts(keys, 1) n ORDER BY random() LOOP
    IF held >= most THEN
      RETURN NEXT keys[i];
      CONTINUE;
    END IF;
    BEGIN
      INSERT INTO idempotency_keys AS k (type, key, id, hash, expires_at)
      VALUES (claim_keys.type, keys[i], ids[i], hashes[i], expiries[i])
      ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
      WHERE k.expires_at <= claim_keys.now OR k.id < claim_keys.first;
    EXCEPTION WHEN lock_not_available THEN
      held := held + 1;
      RETURN NEXT keys[i];
    END;
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
DROP FUNCTION claim_keys;
