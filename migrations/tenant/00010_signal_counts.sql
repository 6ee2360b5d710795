-- +goose Up
-- +goose StatementBegin

-- What signals has, by the last count: signals that no task has taken, their bytes, and signals with
-- an idempotency key. counted_to was the last number of a signal before the count. The numbers that
-- were given out since bound what has come since, so a signal that stays far from the limits counts
-- nothing. It may be too high, as tasks take signals.
CREATE TABLE signal_counts (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one),
  counted_to bigint  NOT NULL,
  kept       bigint  NOT NULL,
  bytes      bigint  NOT NULL,
  keyed      bigint  NOT NULL
);
INSERT INTO signal_counts (counted_to, kept, bytes, keyed)
SELECT coalesce(max(seq), 0), count(*) FILTER (WHERE NOT taken), coalesce(sum(s.bytes) FILTER (WHERE NOT taken), 0),
  count(idempotency_key) FROM signals s;

-- signal_count counts signals, and writes the counts down unless another transaction does. It counts
-- those with an idempotency key only for another one; otherwise all that were sent since may be such.
CREATE FUNCTION signal_count(INOUT counts signal_counts, since bigint, keyed boolean)
LANGUAGE plpgsql AS $$
BEGIN
  counts.counted_to := coalesce(pg_sequence_last_value('signals_seq_seq'), 0);
  SELECT count(*), coalesce(sum(s.bytes), 0) INTO counts.kept, counts.bytes FROM signals s WHERE NOT s.taken;
  IF signal_count.keyed THEN
    SELECT count(*) INTO counts.keyed FROM signals s WHERE s.idempotency_key IS NOT NULL;
  ELSE
    counts.keyed := counts.keyed + greatest(since, 0);
  END IF;
  BEGIN
    PERFORM FROM signal_counts FOR UPDATE SKIP LOCKED;
    IF FOUND THEN
      UPDATE signal_counts c SET counted_to = counts.counted_to, kept = counts.kept, bytes = counts.bytes,
        keyed = counts.keyed;
    END IF;
  EXCEPTION WHEN serialization_failure THEN -- somebody has counted since this transaction began
  END;
END $$;

-- signal_full returns the refusal of a signal for which there is no room: of one task or key, or of
-- the tenant. Each signal has up to most bytes. It counts signals about once in a thousand signals,
-- and more often near a limit.
DROP FUNCTION signal_full(int, bigint, text, int);
CREATE FUNCTION signal_full(type_number int, number bigint, key text, size int, keyed boolean, most bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  counts signal_counts;
  since  bigint;
  own    bigint;
BEGIN
  SELECT * INTO STRICT counts FROM signal_counts;
  since := coalesce(pg_sequence_last_value('signals_seq_seq'), 0) - counts.counted_to;
  IF since < 0 OR since >= least(1000, 100000 - counts.kept, (268435456 - counts.bytes) / greatest(most, size, 1),
    CASE WHEN keyed THEN 1000000 - counts.keyed END)
  THEN
    counts := signal_count(counts, since, keyed);
    since := 0;
  END IF;
  IF counts.kept + since >= 1000 THEN -- otherwise no task can have as many
    IF number IS NOT NULL THEN
      SELECT count(*) INTO own FROM (SELECT FROM signals s
        WHERE s.type = type_number AND s.task = number AND NOT s.taken LIMIT 1000) l;
    ELSE
      SELECT count(*) INTO own FROM (SELECT FROM signals s
        WHERE s.type = type_number AND s.key = signal_full.key AND s.task IS NULL AND NOT s.taken LIMIT 1000) l;
    END IF;
    IF own >= 1000 THEN
      RETURN ARRAY['quota_exceeded', 'the task has 1000 signals that it has not taken; that is the limit', ''];
    END IF;
  END IF;
  IF since > 0 THEN
    RETURN NULL;
  ELSIF counts.kept >= 100000 THEN
    RETURN ARRAY['quota_exceeded', 'the tenant has 100000 signals that no task has taken; that is the limit', ''];
  ELSIF counts.bytes + size > 268435456 THEN
    RETURN ARRAY['quota_exceeded', format('the tenant''s signals that no task has taken have %s bytes; the limit is 268435456',
      counts.bytes + size), ''];
  ELSIF keyed AND counts.keyed >= 1000000 THEN
    RETURN ARRAY['quota_exceeded', 'the tenant has 1000000 signals with an idempotency key that are kept; that is the limit', ''];
  END IF;
  RETURN NULL;
END $$;

-- signal_send sends a signal, and tells the nodes when the transaction is committed. It returns the
-- number of the task that gets it (null: none has the key yet), or a refusal.
CREATE OR REPLACE FUNCTION signal_send(name text, data json, type text, key text, task text, keep interval, idempotency_key text,
  OUT refusal text[], OUT sent_type text, OUT sent_task text, OUT kept_until timestamptz, OUT existing boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  now    timestamptz := clock_timestamp();
  most   submit_limits;
  place  record;
  number bigint;
  over   boolean;
  sent   bigint;
  size   int := coalesce(octet_length(data::text), 0);
  digest bytea;
  before record;
BEGIN
  existing := false;
  SELECT * INTO STRICT most FROM submit_limits;
  IF most.refusal IS NOT NULL THEN
    refusal := ARRAY['tenant_suspended', most.refusal, ''];
    RETURN;
  END IF;
  refusal := signal_check(name, data, type, key, task, keep, idempotency_key, most.context_bytes);
  IF refusal IS NOT NULL THEN
    RETURN;
  END IF;
  sent_type := coalesce(split_part(task, '.', 1), type);
  number := submit_number(task);
  SELECT t.number, t.spec, t.from_pos, t.table_set, t.earlier_set, coalesce(b.first_pos, s.first_pos)::bigint << 40 AS first INTO place
  FROM task_types t JOIN table_sets s ON s.name = t.table_set LEFT JOIN table_sets b ON b.name = t.earlier_set
  WHERE t.name = sent_type FOR KEY SHARE OF t;
  IF NOT FOUND THEN
    refusal := CASE WHEN task IS NULL THEN ARRAY['not_found', 'there is no task type ' || sent_type, 'type']
      ELSE ARRAY['not_found', 'there is no task ' || task, 'task'] END;
    RETURN;
  END IF;
  refusal := signal_name(sent_type, place.spec, name);
  IF refusal IS NOT NULL THEN
    RETURN;
  END IF;

  digest := sha256(convert_to(json_build_array(name, task, key, extract(epoch FROM keep), data::text)::text, 'UTF8'));
  IF idempotency_key IS NOT NULL THEN
    DELETE FROM signals s WHERE s.type = place.number AND s.idempotency_key = signal_send.idempotency_key AND s.kept_until <= now;
    SELECT s.task, s.hash, s.kept_until INTO before FROM signals s
    WHERE s.type = place.number AND s.idempotency_key = signal_send.idempotency_key;
    existing := FOUND;
  END IF;
  IF NOT existing THEN
    IF number IS NULL THEN
      number := signal_task(sent_type, place.number, key, place.first);
    END IF;
    over := signal_over(CASE WHEN number >> 40 < place.from_pos THEN place.earlier_set ELSE place.table_set END, place.number, number);
    IF over THEN
      refusal := ARRAY['task_over', format('task %s is over: it takes no signal', submit_id(sent_type, number)), ''];
      RETURN;
    ELSIF over IS NULL AND task IS NOT NULL THEN
      refusal := ARRAY['not_found', 'there is no task ' || task, 'task'];
      RETURN;
    ELSIF over IS NULL THEN
      number := NULL;
    END IF;
    refusal := signal_full(place.number, number, key, size, idempotency_key IS NOT NULL, most.context_bytes);
    IF refusal IS NOT NULL THEN
      RETURN;
    END IF;
    kept_until := now + coalesce(keep, interval '24:00');
    INSERT INTO signals AS s (type, task, key, name, data, bytes, sent_at, kept_until, idempotency_key, hash)
    VALUES (place.number, number, CASE WHEN task IS NULL THEN signal_send.key END, signal_send.name, data::text, size, now,
      signal_send.kept_until, signal_send.idempotency_key, digest)
    ON CONFLICT DO NOTHING RETURNING s.seq INTO sent;
    IF sent IS NULL THEN -- another transaction has sent it just now
      SELECT s.task, s.hash, s.kept_until INTO before FROM signals s
      WHERE s.type = place.number AND s.idempotency_key = signal_send.idempotency_key;
      IF NOT FOUND THEN
        refusal := ARRAY['conflict', 'another transaction sends a signal with this idempotency key; try it again', ''];
        RETURN;
      END IF;
      existing := true;
    END IF;
  END IF;
  IF existing THEN
    IF before.hash <> digest THEN
      refusal := ARRAY['key_reused', 'the idempotency key stands for a signal that differs', 'idempotency_key'];
      RETURN;
    END IF;
    number := before.task;
    kept_until := before.kept_until;
  ELSE
    INSERT INTO outbox (kind, due, type, id) VALUES (CASE WHEN number IS NULL THEN 'signal_key' ELSE 'signal' END,
      now, place.number, coalesce(number, sent));
    PERFORM pg_notify('asyncflow_wake', format('0 %s', to_regnamespace(quote_ident(current_schema()))::oid));
  END IF;
  sent_task := submit_id(sent_type, number);
END $$;

-- send_signal sends a signal in the caller's transaction, and returns the id of the task that gets
-- it; null: no task has the key yet. Only links send signals with an idempotency key that begins
-- with link/.
CREATE OR REPLACE FUNCTION send_signal(name text, data json DEFAULT NULL, type text DEFAULT NULL, key text DEFAULT NULL,
  task text DEFAULT NULL, keep interval DEFAULT NULL, idempotency_key text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  sent record;
BEGIN
  IF starts_with(idempotency_key, 'link/') THEN
    RAISE EXCEPTION USING MESSAGE = 'idempotency_key begins with link/, as only those of links do',
      DETAIL = 'invalid_argument', COLUMN = 'idempotency_key', ERRCODE = submit_sqlstate('invalid_argument');
  END IF;
  sent := signal_send(name, data, type, key, task, keep, idempotency_key);
  IF sent.refusal IS NOT NULL THEN
    RAISE EXCEPTION USING MESSAGE = sent.refusal[2], DETAIL = sent.refusal[1], COLUMN = sent.refusal[3],
      ERRCODE = CASE sent.refusal[1] WHEN 'task_over' THEN '55000' ELSE submit_sqlstate(sent.refusal[1]) END;
  END IF;
  RETURN sent.sent_task;
END $$;

REVOKE ALL ON FUNCTION signal_count, signal_full, signal_send, send_signal FROM PUBLIC;

-- +goose StatementEnd
