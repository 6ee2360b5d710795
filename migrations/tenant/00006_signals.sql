-- +goose Up
-- +goose StatementBegin

-- Signals that no task has taken. task is the one that gets it; null: the first that has the key
-- and waits for it. One with an idempotency key stays when it is taken, without data, until
-- kept_until. hash is SHA-256 of what was sent.
CREATE TABLE signals (
  seq        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  type       int         NOT NULL,
  task       bigint,
  key        text,
  name       text        NOT NULL,
  data       text,
  bytes      int         NOT NULL,
  sent_at    timestamptz NOT NULL,
  kept_until timestamptz NOT NULL,
  idempotency_key text,
  hash       bytea       NOT NULL,
  taken      boolean     NOT NULL DEFAULT false
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
  toast.autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON signals (type, task, name, seq) WHERE NOT taken AND task IS NOT NULL;
CREATE INDEX ON signals (type, key) WHERE NOT taken AND task IS NULL;
CREATE INDEX ON signals (bytes) WHERE NOT taken;
CREATE UNIQUE INDEX ON signals (type, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX ON signals (kept_until);

-- What the tasks in wait with the reason signal wait for, since when and until when. late: that is over, and
-- outbox has a row about the task. A row without one in wait means nothing: its task went on in
-- another way.
CREATE TABLE signal_waits (
  type   int         NOT NULL,
  id     bigint      NOT NULL,
  signal text        NOT NULL,
  since  timestamptz NOT NULL,
  until  timestamptz NOT NULL,
  late   boolean     NOT NULL DEFAULT false,
  PRIMARY KEY (type, id)
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ON signal_waits (until) WHERE NOT late;

-- signal_task returns the task for which a key of a type stands or stood last; null: none.
CREATE FUNCTION signal_task(type text, type_number int, key text, first bigint) RETURNS bigint
LANGUAGE sql STABLE AS $$
  SELECT coalesce(
    (SELECT k.id FROM idempotency_keys k WHERE k.type = signal_task.type AND k.key = signal_task.key AND k.id >= first),
    (SELECT p.id FROM past_keys p WHERE p.type = type_number AND p.key = signal_task.key AND p.id >= first))
$$;

-- signal_over reports whether a task is over; null: there is none. Its roll may be dropped at any
-- time.
CREATE FUNCTION signal_over(table_set text, type_number int, number bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  over boolean;
BEGIN
  IF NOT submit_exists(table_set, type_number, number) THEN
    RETURN NULL;
  END IF;
  EXECUTE format('SELECT final IS NOT NULL FROM %s WHERE type = $1 AND id = $2 ORDER BY seq DESC LIMIT 1',
    submit_table('journal', table_set, (number >> 40)::int)) INTO over USING type_number, number;
  RETURN coalesce(over, false);
EXCEPTION WHEN undefined_table THEN
  RETURN NULL;
END $$;

-- signal_check returns the refusal of what can be refused without a look at the tables.
CREATE FUNCTION signal_check(name text, data json, type text, key text, task text, keep interval,
  idempotency_key text, context_limit bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  size    bigint := octet_length(convert_to(data::text, 'UTF8'));
  refusal text[];
BEGIN
  SELECT ARRAY[CASE WHEN size > context_limit THEN 'too_large' ELSE 'invalid_argument' END,
    string_agg(p.field || ' ' || p.what, '; ' ORDER BY p.i), (array_agg(p.field ORDER BY p.i))[1]] INTO refusal
  FROM (VALUES
    (1, 'name', CASE
      WHEN coalesce(name, '') = '' THEN 'is required'
      WHEN octet_length(name) > 40 THEN format('is %s characters long; the limit is 40', octet_length(name))
      WHEN name COLLATE "C" !~ '^[a-z]' THEN 'must start with a lower-case letter'
      WHEN name COLLATE "C" !~ '^[a-z0-9_-]+$' THEN 'may hold lower-case letters, digits, - and _ only' END),
    (2, 'data', CASE
      WHEN size > context_limit THEN format('is %s bytes; the limit is %s', size, context_limit)
      WHEN submit_depth(data::text, 128) > 128 THEN 'is nested more than 128 deep' END),
    (3, 'task', CASE
      WHEN task IS NOT NULL AND key IS NOT NULL THEN 'and key exclude each other'
      WHEN task IS NULL AND key IS NULL THEN 'is required, or type and key'
      WHEN submit_number(task) IS NULL AND task IS NOT NULL THEN 'id must look like thumbnails.1.42 (type.position.number)' END),
    (4, 'type', CASE
      WHEN key IS NOT NULL AND coalesce(type, '') = '' THEN 'is required with key'
      WHEN task IS NOT NULL AND type IS NOT NULL AND type <> split_part(task, '.', 1) THEN 'differs from that of the task' END),
    (5, 'key', CASE
      WHEN key = '' THEN 'must not be empty'
      WHEN octet_length(key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(key)) END),
    (6, 'keep', CASE WHEN keep NOT BETWEEN interval '1 s' AND interval '720:00'
      THEN format('is %s; it must be 1s to 720h', submit_duration(extract(epoch FROM keep))) END),
    (7, 'idempotency_key', CASE
      WHEN idempotency_key = '' THEN 'must not be empty'
      WHEN octet_length(idempotency_key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(idempotency_key)) END)
  ) AS p (i, field, what) WHERE p.what IS NOT NULL HAVING count(*) > 0;
  RETURN refusal;
END $$;

-- signal_name returns the refusal of a signal for which no task of a type waits.
CREATE FUNCTION signal_name(type text, spec json, name text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  known text[];
BEGIN
  SELECT array_agg(s -> 'wait' ->> 'signal' ORDER BY i) INTO known
  FROM json_array_elements(spec -> 'stages') WITH ORDINALITY AS u (s, i) WHERE s ->> 'mode' = 'wait';
  IF known IS NULL THEN
    RETURN ARRAY['invalid_argument', format('type is %s, in which no stage waits for a signal', type), 'type'];
  ELSIF name <> ALL (known) THEN
    RETURN ARRAY['invalid_argument', format('name is "%s"; the stages of %s wait for %s', name, type,
      array_to_string(known, ', ')), 'name'];
  END IF;
  RETURN NULL;
END $$;

-- signal_full returns the refusal of a signal for which there is no room: of one task or key, or of
-- the tenant.
CREATE FUNCTION signal_full(type_number int, number bigint, key text, size int) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  kept  bigint;
  bytes bigint;
BEGIN
  IF number IS NOT NULL THEN
    SELECT count(*) INTO kept FROM (SELECT FROM signals s
      WHERE s.type = type_number AND s.task = number AND NOT s.taken LIMIT 1000) l;
  ELSE
    SELECT count(*) INTO kept FROM (SELECT FROM signals s
      WHERE s.type = type_number AND s.key = signal_full.key AND s.task IS NULL AND NOT s.taken LIMIT 1000) l;
  END IF;
  IF kept >= 1000 THEN
    RETURN ARRAY['quota_exceeded', 'the task has 1000 signals that it has not taken; that is the limit', ''];
  END IF;
  SELECT count(*), coalesce(sum(s.bytes), 0) INTO kept, bytes FROM signals s WHERE NOT s.taken;
  IF kept >= 100000 THEN
    RETURN ARRAY['quota_exceeded', 'the tenant has 100000 signals that no task has taken; that is the limit', ''];
  ELSIF bytes + size > 268435456 THEN
    RETURN ARRAY['quota_exceeded', format('the tenant''s signals that no task has taken have %s bytes; the limit is 268435456',
      bytes + size), ''];
  END IF;
  RETURN NULL;
END $$;

-- signal_send sends a signal, and tells the nodes when the transaction is committed. It returns the
-- number of the task that gets it (null: none has the key yet), or a refusal.
CREATE FUNCTION signal_send(name text, data json, type text, key text, task text, keep interval, idempotency_key text,
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
    refusal := signal_full(place.number, number, key, size);
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
-- it; null: no task has the key yet.
CREATE FUNCTION send_signal(name text, data json DEFAULT NULL, type text DEFAULT NULL, key text DEFAULT NULL,
  task text DEFAULT NULL, keep interval DEFAULT NULL, idempotency_key text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  sent record;
BEGIN
  sent := signal_send(name, data, type, key, task, keep, idempotency_key);
  IF sent.refusal IS NOT NULL THEN
    RAISE EXCEPTION USING MESSAGE = sent.refusal[2], DETAIL = sent.refusal[1], COLUMN = sent.refusal[3],
      ERRCODE = CASE sent.refusal[1] WHEN 'task_over' THEN '55000' ELSE submit_sqlstate(sent.refusal[1]) END;
  END IF;
  RETURN sent.sent_task;
END $$;

-- No other role may run these functions without a grant: see the first migration. Roles that may
-- submit may also send signals.
REVOKE ALL ON FUNCTION signal_task, signal_over, signal_check, signal_name, signal_full, signal_send, send_signal FROM PUBLIC;
DO $$
DECLARE
  role text;
BEGIN
  FOR role IN SELECT r.rolname FROM pg_proc p, aclexplode(p.proacl) a JOIN pg_roles r ON r.oid = a.grantee
    WHERE p.oid = 'submit_task(text,json,text,int,timestamptz,text,interval,json,text)'::regprocedure
      AND a.privilege_type = 'EXECUTE' AND r.oid <> p.proowner
  LOOP
    EXECUTE format('GRANT EXECUTE ON FUNCTION send_signal TO %I', role);
  END LOOP;
END $$;

-- +goose StatementEnd
