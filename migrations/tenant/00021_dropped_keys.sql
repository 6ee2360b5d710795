-- +goose Up

-- +goose StatementBegin
-- submit_claim has a key stand for a task, and returns the task that it stands for: this
-- one, or an earlier one, which must have the same context. It waits for other transactions
-- that have the key. A key whose task was dropped with its roll stands for none any more.
CREATE OR REPLACE FUNCTION submit_claim(type text, key text, number bigint, context json, expires timestamptz, now timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  digest bytea := sha256(convert_to(context::text, 'UTF8'));
  held   record;
  first  bigint := (SELECT t.first_pos::bigint << 40 FROM task_types t WHERE t.name = submit_claim.type);
BEGIN
  LOOP
    INSERT INTO idempotency_keys AS k (type, key, id, hash, expires_at)
    VALUES (submit_claim.type, submit_claim.key, number, digest, expires)
    ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
    WHERE k.expires_at <= submit_claim.now OR k.id < first;
    IF FOUND THEN
      RETURN number;
    END IF;
    SELECT k.id, k.hash INTO held FROM idempotency_keys k WHERE k.type = submit_claim.type AND k.key = submit_claim.key;
    CONTINUE WHEN NOT FOUND; -- it has expired and was deleted in between
    IF held.hash <> digest THEN
      PERFORM submit_refuse('key_reused', format('key stands for task %s, which has another context', submit_id(type, held.id)), 'key');
    END IF;
    RETURN held.id;
  END LOOP;
END $$;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
-- submit_claim has a key stand for a task, and returns the task that it stands for: this
-- one, or an earlier one, which must have the same context. It waits for other transactions
-- that have the key.
CREATE OR REPLACE FUNCTION submit_claim(type text, key text, number bigint, context json, expires timestamptz, now timestamptz) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
  digest bytea := sha256(convert_to(context::text, 'UTF8'));
  held   record;
BEGIN
  LOOP
    INSERT INTO idempotency_keys AS k (type, key, id, hash, expires_at)
    VALUES (submit_claim.type, submit_claim.key, number, digest, expires)
    ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
    WHERE k.expires_at <= submit_claim.now;
    IF FOUND THEN
      RETURN number;
    END IF;
    SELECT k.id, k.hash INTO held FROM idempotency_keys k WHERE k.type = submit_claim.type AND k.key = submit_claim.key;
    CONTINUE WHEN NOT FOUND; -- it has expired and was deleted in between
    IF held.hash <> digest THEN
      PERFORM submit_refuse('key_reused', format('key stands for task %s, which has another context', submit_id(type, held.id)), 'key');
    END IF;
    RETURN held.id;
  END LOOP;
END $$;
-- +goose StatementEnd
