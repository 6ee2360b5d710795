-- +goose Up
-- +goose StatementBegin

-- The schema of a tenant. The names are unqualified, as the search path is that schema.
--
-- A btree costs a new tenant an fsync before Postgres 17, and so does each table with a column of
-- unlimited length.

SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Task types --------------------------------------------------------------------------------------

-- A table set is the rolled tables (task, journal, ready) of one task type, or ('') those that all
-- other types share. Ready rows are written to end_pos and leased from begin_pos on; the oldest
-- tables that are kept are those of first_pos. A set that gets no more tasks ends up with a
-- begin_pos after its end_pos.
CREATE TABLE table_sets (
  name      text PRIMARY KEY,
  first_pos int  NOT NULL,
  begin_pos int  NOT NULL,
  end_pos   int  NOT NULL,
  CHECK (first_pos >= 1 AND begin_pos >= first_pos AND end_pos >= begin_pos - 1)
);

-- One row a roll. Task numbers are allotted from next_number in blocks. sealed_at: no row is added
-- to the roll's task and ready tables from then on. drained_at: its ready table was empty, and
-- begin_pos moved on; ready_dropped: that table is gone. A roll hands out numbers only in the
-- history in which it was opened. idle_since: since when no task of the roll has been live, which
-- is after the last event of any; null while one may be. The retention counts from it.
CREATE TABLE rolls (
  table_set     text        NOT NULL REFERENCES table_sets (name) ON DELETE CASCADE,
  position      int         NOT NULL,
  next_number   bigint      NOT NULL DEFAULT 1,
  opened_at     timestamptz NOT NULL,
  sealed_at     timestamptz,
  drained_at    timestamptz,
  ready_dropped boolean     NOT NULL DEFAULT false,
  history       text        NOT NULL,
  idle_since    timestamptz,
  PRIMARY KEY (table_set, position)
) WITH (fillfactor = 50);

-- Always empty: a foreign key to it seals a table against inserts.
CREATE TABLE sealed (id bigint PRIMARY KEY);

-- spec is the document that was applied. A paused type is not leased from. After a resume its
-- dispatchers ramp up over ramp_seconds from resumed_at on. stage_mapping says where tasks go on
-- that still stand in a stage that was removed. number names the type in the rows of all tables.
-- New tasks go to table_set; its rolls from from_pos on may have tasks of the type. Earlier ones
-- are in the earlier set, if there is one. awaited_since: since when somebody has waited for tasks
-- of the type; null: nobody ever has.
CREATE SEQUENCE type_numbers AS int;
CREATE TABLE task_types (
  name          text        PRIMARY KEY,
  version       int         NOT NULL,
  spec          json        NOT NULL,
  created_at    timestamptz NOT NULL,
  updated_at    timestamptz NOT NULL,
  paused_at     timestamptz,
  pause_reason  text,
  resumed_at    timestamptz,
  ramp_seconds  double precision CHECK (ramp_seconds >= 0),
  stage_mapping json,
  number        int         NOT NULL DEFAULT nextval('type_numbers') UNIQUE,
  table_set     text        NOT NULL REFERENCES table_sets (name),
  from_pos      int         NOT NULL,
  earlier_set   text        REFERENCES table_sets (name),
  awaited_since timestamptz,
  UNIQUE (name, table_set) -- so a move is a change of a key, which FOR KEY SHARE notices
);

-- The last position of task types that were deleted. One that is made again goes on
-- after it, so that no id ever names two tasks.
CREATE TABLE retired_types (
  name    text PRIMARY KEY,
  end_pos int  NOT NULL
);

-- Deleted types whose rows are still in shared tables.
CREATE TABLE deleted_types (
  number int  PRIMARY KEY,
  name   text NOT NULL
);

-- What transactions lock (FOR UPDATE) so that one of a kind runs at a time. See store/lock.go.
CREATE TABLE locks (
  name   varchar(20) NOT NULL,
  number int         NOT NULL,
  PRIMARY KEY (name, number)
);

-- Live tasks --------------------------------------------------------------------------------------

-- The live tasks of all types that are leased, or wait. The settings are those of
-- store/table_settings.go. There are no CHECK constraints: Postgres reads their text anew for each
-- statement.
CREATE TABLE lease (
  type      int         NOT NULL,
  id        bigint      NOT NULL,
  seq       smallint    NOT NULL,
  stage     text        NOT NULL,
  attempt   smallint    NOT NULL,
  node      text        NOT NULL,
  leased_at timestamptz NOT NULL,
  until     timestamptz NOT NULL,
  progress  smallint,
  note      text,
  key       text,
  endpoint  uuid,
  claimer   text, -- who has asked for the task; null: it is pushed
  unsent    boolean, -- sending hasn't begun; null: it may have
  subject   text, -- the sub of the token with which the claimer asked; null: none, or it is pushed
  PRIMARY KEY (type, id)
) WITH (fillfactor = 70, vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);
CREATE INDEX ON lease (type, key) WHERE key IS NOT NULL;
CREATE INDEX ON lease (type, claimer) WHERE claimer IS NOT NULL;

CREATE TABLE wait (
  type       int         NOT NULL,
  id         bigint      NOT NULL,
  seq        smallint    NOT NULL,
  stage      text        NOT NULL,
  attempt    smallint    NOT NULL,
  order_time timestamptz NOT NULL,
  reason     text        NOT NULL,
  key        text,
  until      timestamptz NOT NULL,
  since      timestamptz,
  PRIMARY KEY (type, id)
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);
CREATE INDEX ON wait (type, until);
CREATE INDEX ON wait (type, key, order_time, id) WHERE reason = 'flow_key';
CREATE INDEX ON wait (type, key, reason) WHERE key IS NOT NULL AND reason <> 'flow_key';
CREATE INDEX ON wait (type, stage, order_time, id) WHERE until = 'infinity' AND reason <> 'flow_key';

-- The tasks that have failed for good and keep the others of their flow key waiting.
CREATE TABLE flow_blocks (
  type text   NOT NULL,
  key  text   NOT NULL,
  id   bigint NOT NULL,
  PRIMARY KEY (type, key, id)
);

-- A key's first task, until the key expires. hash is SHA-256 of the context.
CREATE TABLE idempotency_keys (
  type       text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  key        text        NOT NULL,
  id         bigint      NOT NULL,
  hash       bytea       NOT NULL,
  expires_at timestamptz NOT NULL,
  PRIMARY KEY (type, key)
);
CREATE INDEX ON idempotency_keys (expires_at);

-- What was counted in one transaction, or, once governance has added them up, in a
-- longer time. Inserted and deleted only.
CREATE TABLE tallies (
  type      text        NOT NULL,
  at        timestamptz NOT NULL,
  submitted bigint      NOT NULL DEFAULT 0,
  attempts  bigint      NOT NULL DEFAULT 0,
  failures  bigint      NOT NULL DEFAULT 0,
  succeeded bigint      NOT NULL DEFAULT 0,
  failed    bigint      NOT NULL DEFAULT 0,
  cancelled bigint      NOT NULL DEFAULT 0
);

-- Trees -------------------------------------------------------------------------------------------

-- What is left to do because of a transaction that was committed: the node that wrote the row does
-- it next, or a background job. See store/outbox.go for the kinds.
CREATE TABLE outbox (
  seq       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  kind      text        NOT NULL,
  due       timestamptz NOT NULL,
  type      int         NOT NULL,
  id        bigint      NOT NULL,
  fan_out   smallint    NOT NULL DEFAULT 0,
  succeeded int         NOT NULL DEFAULT 0,
  failed    int         NOT NULL DEFAULT 0,
  cancelled int         NOT NULL DEFAULT 0,
  at        int         NOT NULL DEFAULT 0
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);
CREATE INDEX ON outbox (due, seq);
CREATE INDEX outbox_failed ON outbox (type, id, fan_out)
  WHERE kind = 'children' AND failed + cancelled > 0;

-- The tasks that tasks depend on: the n-th of a task (type, id) is the task (on_type, on_id), or
-- the one with a key. status says how that has ended; until it has, the edge is open. It is late
-- when that has not ended until then, and gone when that was dropped. key is the idempotency key of
-- the task that waits, by which others may wait for it. wait_for is how long it waits, from when the
-- edge opened.
CREATE TABLE edges (
  type       int      NOT NULL,
  id         bigint   NOT NULL,
  n          smallint NOT NULL,
  on_type    int      NOT NULL,
  on_id      bigint,
  on_key     text,
  on_failure text     NOT NULL,
  until      timestamptz,
  status     text,
  key        text,
  wait_for   interval,
  PRIMARY KEY (type, id, n)
);
CREATE INDEX ON edges (on_type, on_id) WHERE status IS NULL AND on_id IS NOT NULL;
CREATE INDEX ON edges (on_type, on_key) WHERE status IS NULL AND on_key IS NOT NULL;
CREATE INDEX ON edges (on_type, on_id) WHERE status <> 'succeeded';
CREATE INDEX ON edges (until) WHERE status IS NULL AND until IS NOT NULL;

-- The idempotency keys whose windows are over, of the tasks that are kept of types that others depend
-- on: dependents find these tasks by them. A later task with the key replaces an earlier one.
CREATE TABLE past_keys (
  type int    NOT NULL,
  key  text   NOT NULL,
  id   bigint NOT NULL,
  PRIMARY KEY (type, key)
);
CREATE INDEX ON past_keys (type, id);

-- The children of a task in one stage. seq is that of the task's row in wait when it fanned out,
-- waits that of its latest one: a redrive of the failed children makes another. spawned of count
-- children are made, in runs of ids that begin with firsts, at the indexes starts. again is the
-- index at which a redrive of the failed ones goes on. closed: the task no longer waits for them.
-- paused_at says since when no further child begins.
CREATE TABLE fan_outs (
  type      int      NOT NULL,
  id        bigint   NOT NULL,
  seq       smallint NOT NULL,
  waits     smallint NOT NULL,
  stage     text     NOT NULL,
  rule      json     NOT NULL,
  count     int      NOT NULL,
  spawned   int      NOT NULL DEFAULT 0,
  firsts    bigint[] NOT NULL DEFAULT '{}',
  starts    int[]    NOT NULL DEFAULT '{}',
  succeeded int      NOT NULL DEFAULT 0,
  failed    int      NOT NULL DEFAULT 0,
  cancelled int      NOT NULL DEFAULT 0,
  again     int,
  stopped   boolean  NOT NULL DEFAULT false,
  closed    boolean  NOT NULL DEFAULT false,
  paused_at    timestamptz,
  pause_reason text,
  PRIMARY KEY (type, id, seq)
) WITH (fillfactor = 70);
CREATE INDEX ON fan_outs (type, id, seq) WHERE NOT closed;

-- Claims ------------------------------------------------------------------------------------------

-- The tasks that a claimer was shown lately in a stage with a window, and when each was so last. The
-- row means nothing after until.
CREATE TABLE claim_windows (
  type    int           NOT NULL,
  stage   text          NOT NULL,
  claimer text          NOT NULL,
  ids     bigint[]      NOT NULL,
  shown   timestamptz[] NOT NULL,
  until   timestamptz   NOT NULL,
  PRIMARY KEY (type, stage, claimer)
);
CREATE INDEX ON claim_windows (until);

-- When somebody asked last for tasks of a stage, to about a quarter of a minute.
CREATE TABLE claim_stages (
  type     int         NOT NULL,
  stage    text        NOT NULL,
  asked_at timestamptz NOT NULL,
  PRIMARY KEY (type, stage)
) WITH (fillfactor = 50);

-- Who has claimed or cast a vote on a task; key names the task (see Child.VoteKey). late is the
-- outcome of a vote that came after the decision; such a row is kept until a time.
CREATE TABLE votes (
  type    int         NOT NULL,
  claimer text        NOT NULL,
  key     text        NOT NULL,
  late    text,
  at      timestamptz,
  until   timestamptz,
  subject text,
  PRIMARY KEY (type, claimer, key)
);
CREATE INDEX ON votes (type, key);
CREATE INDEX ON votes (until) WHERE until IS NOT NULL;

-- How many of a claimer's last votes in a stage agreed with the decision. The row means nothing after
-- until.
CREATE TABLE voters (
  type    int         NOT NULL,
  stage   text        NOT NULL,
  claimer text        NOT NULL,
  agreed  int         NOT NULL,
  until   timestamptz NOT NULL,
  PRIMARY KEY (type, stage, claimer)
);
CREATE INDEX ON voters (until);

-- Endpoints ---------------------------------------------------------------------------------------

-- outbound is sealed: headers, auth and certificates. A challenged endpoint gets no
-- deliveries until it is verified. batch_max_tasks and
-- batch_max_wait: how many tasks it gets in one request, and how long one waits for others; without
-- them each task has a request of its own. batch_max_wait_text is how batch_max_wait was written.
CREATE TABLE endpoints (
  id                 uuid        PRIMARY KEY,
  type               text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  stage              text        NOT NULL,
  url                text        NOT NULL,
  created_at         timestamptz NOT NULL,
  weight             smallint    NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0 AND 100),
  outbound           bytea,
  challenged         boolean     NOT NULL DEFAULT false,
  verified_at        timestamptz,
  verification_error text        NOT NULL DEFAULT '',
  updated_at         timestamptz NOT NULL,
  max_in_flight      int         CHECK (max_in_flight > 0),
  rate               text,
  batch_max_tasks    int         CHECK (batch_max_tasks > 0),
  batch_max_wait     interval,
  batch_max_wait_text text
);
CREATE INDEX ON endpoints (type, stage);

-- What deliveries to an endpoint are signed with: several at a time while one is rotated
-- away. sealed begins with what names its key (AES-256-GCM).
CREATE TABLE endpoint_secrets (
  id         uuid        PRIMARY KEY,
  endpoint   uuid        NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
  kind       text        NOT NULL CHECK (kind IN ('hmac', 'ed25519')),
  sealed     bytea       NOT NULL,
  public_key text        NOT NULL DEFAULT '' CHECK ((kind = 'ed25519') = (public_key <> '')),
  created_at timestamptz NOT NULL,
  expires_at timestamptz
);
CREATE INDEX ON endpoint_secrets (endpoint);

-- How an endpoint is doing, if it isn't simply well, and what it may have at once.
CREATE TABLE endpoint_health (
  endpoint uuid        PRIMARY KEY REFERENCES endpoints (id) ON DELETE CASCADE,
  state    text        NOT NULL CHECK (state IN ('closed', 'open', 'disabled')),
  since    timestamptz NOT NULL,
  until    timestamptz,
  pause    interval    NOT NULL,
  reason   text        NOT NULL
);

-- How the attempts at an endpoint went, added up by minute and kept for an hour. codes are its
-- failures by code, and latencies its attempts by how long they took, in the order of
-- asyncflow.FailureCode and of the buckets of asyncflow.Latencies; without the zeros at the end.
CREATE TABLE endpoint_minutes (
  endpoint  uuid        NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
  at        timestamptz NOT NULL,
  attempts  int         NOT NULL,
  failures  int         NOT NULL,
  codes     int[]       NOT NULL DEFAULT '{}',
  latencies int[]       NOT NULL DEFAULT '{}',
  PRIMARY KEY (endpoint, at)
) WITH (fillfactor = 50);
CREATE INDEX ON endpoint_minutes (at);

-- The last changes of an endpoint's health, in their order: 50 at most.
CREATE TABLE endpoint_changes (
  endpoint uuid        NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
  at       timestamptz NOT NULL,
  state    text        NOT NULL CHECK (state IN ('closed', 'open', 'disabled')),
  until    timestamptz,
  reason   text        NOT NULL,
  PRIMARY KEY (endpoint, at)
);

-- Plans, alerts and records -----------------------------------------------------------------------

-- Schedules: what submits a task at each of its ticks. spec is the document that was
-- applied, without the context of its tasks. next_at is the first tick that hasn't been
-- dealt with, null when there is none. last_at and last_id are of the last tick that had
-- a task, skipped_at of the last one of the skipped that had none, as the task before
-- was not final.
CREATE TABLE schedules (
  name       text        PRIMARY KEY,
  type       text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  spec       json        NOT NULL,
  context    json        NOT NULL,
  version    int         NOT NULL,
  next_at    timestamptz,
  paused_at  timestamptz,
  last_at    timestamptz,
  last_id    bigint,
  skipped    bigint      NOT NULL DEFAULT 0,
  skipped_at timestamptz,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  last_error text        NOT NULL DEFAULT '',
  failed_at  timestamptz
);
CREATE INDEX ON schedules (next_at) WHERE paused_at IS NULL;
CREATE INDEX ON schedules (type);

-- Cancelling, redriving, changing or counting all tasks that a filter finds. position is the number of the
-- last task looked at, next_at when the next step is due, for the sake of the pace.
CREATE TABLE operations (
  id          uuid        PRIMARY KEY,
  kind        text        NOT NULL CHECK (kind IN ('cancel', 'redrive', 'priority', 'count')),
  type        text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  filter      json        NOT NULL,
  options     json        NOT NULL,
  state       text        NOT NULL CHECK (state IN ('running', 'done', 'stopped', 'failed')),
  total       bigint      NOT NULL,
  done        bigint      NOT NULL DEFAULT 0,
  skipped     bigint      NOT NULL DEFAULT 0,
  position    bigint      NOT NULL DEFAULT 0,
  next_at     timestamptz NOT NULL,
  error       text,
  created_at  timestamptz NOT NULL,
  finished_at timestamptz
);
CREATE INDEX ON operations (created_at);

-- Where a tenant's alerts go, and when: one row at most. The endpoint is of the task type
-- asyncflow-alerts. evaluated_at is when a node last took its turn at the rules.
CREATE TABLE alerts (
  endpoint     uuid        PRIMARY KEY REFERENCES endpoints (id) ON DELETE CASCADE,
  rules        json        NOT NULL,
  evaluated_at timestamptz NOT NULL DEFAULT '-infinity',
  updated_at   timestamptz NOT NULL
);
CREATE UNIQUE INDEX ON alerts ((true));

-- The time from when something got over its limit until it was back for a minute; below
-- is since when it has been back. firing_task and resolved_task are the tasks that told.
-- waits_for is why the task was held that had been due for longest, when an alert of a backlog began.
CREATE TABLE alert_episodes (
  id             uuid             PRIMARY KEY,
  endpoint       uuid             NOT NULL REFERENCES alerts (endpoint) ON DELETE CASCADE,
  alert          text             NOT NULL,
  subject        text             NOT NULL,
  since          timestamptz      NOT NULL,
  value          double precision NOT NULL,
  bound          double precision NOT NULL,
  below          timestamptz,
  resolved_at    timestamptz,
  resolved_value double precision,
  firing_task    text,
  resolved_task  text,
  waits_for      text
);
CREATE UNIQUE INDEX ON alert_episodes (alert, subject) WHERE resolved_at IS NULL;

-- Who did what in the tenant. claimed is what a token said that was not accepted; calls
-- and last_at tell of several calls that share a row. No row has a secret or a context.
CREATE TABLE audit (
  id          uuid        PRIMARY KEY,
  at          timestamptz NOT NULL,
  origin      text        NOT NULL CHECK (origin IN ('api', 'cli', 'node')),
  tenant      text,
  subject     text,
  token_id    text,
  issuer      text,
  scopes      text,
  action      text        NOT NULL,
  object_type text,
  object      text,
  address     text,
  proxy       text,
  request_id  text,
  user_agent  text,
  outcome     text        NOT NULL CHECK (outcome IN ('done', 'refused', 'denied', 'failed')),
  status      smallint,
  code        text,
  detail      json,
  claimed     json,
  calls       bigint      NOT NULL DEFAULT 1 CHECK (calls > 0),
  last_at     timestamptz
);
CREATE INDEX ON audit (at, id);

-- Rows are only ever added: an UPDATE changes nothing, and a DELETE passes over what is
-- younger than a day, whoever asks, the owner and superusers too. A role that may only
-- INSERT and SELECT can do all that requests need.
CREATE RULE audit_never_changes AS ON UPDATE TO audit DO INSTEAD NOTHING;
CREATE RULE audit_keeps_a_day AS ON DELETE TO audit WHERE old.at > now() - interval '1 day' DO INSTEAD NOTHING;
REVOKE UPDATE, TRUNCATE ON audit FROM CURRENT_USER;

-- Numbers -----------------------------------------------------------------------------------------

-- Numbers of tasks that are submitted by SQL. Those of a roll's row would keep it locked until
-- the caller's transaction ends. They are the upper half of a roll's numbers.
CREATE SEQUENCE submit_numbers MAXVALUE 549755813887 CYCLE; -- 2^39 - 1

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

-- In which history the last roll was opened, and where the numbers of its tasks begin: at 1, or in
-- another history than the first one far from there.
CREATE TABLE numbering (
  one          boolean PRIMARY KEY DEFAULT true CHECK (one),
  history      text    NOT NULL,
  first_number bigint  NOT NULL CHECK (first_number > 0)
);
INSERT INTO numbering (history, first_number) VALUES (history('rolls'::regclass), 1);

-- random_number returns a place far from 1 and far from the end.
CREATE FUNCTION random_number() RETURNS bigint
LANGUAGE sql AS $$ SELECT (1::bigint << 36) + floor(random() * 3 * (1::bigint << 36))::bigint $$;

-- number_from has numbers begin somewhere else, those of submit_task too. In the history that was
-- lost they began at 1, or at another random place: the two meet in 1 of 10,000 cases if both rolls
-- get ten million tasks. 2^36 numbers are more than a roll ever has.
CREATE FUNCTION number_from(number bigint) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE numbering SET history = history('rolls'::regclass), first_number = number;
  PERFORM setval('submit_numbers', number, false);
END $$;

-- open_roll writes the row of a new roll of a table set.
CREATE FUNCTION open_roll(table_set text, roll int, now timestamptz) RETURNS void
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM FROM numbering n WHERE n.history <> history('rolls'::regclass) FOR UPDATE;
  IF FOUND THEN
    PERFORM number_from(random_number());
  END IF;
  INSERT INTO rolls (table_set, position, opened_at, history, next_number)
  SELECT open_roll.table_set, open_roll.roll, open_roll.now, n.history, n.first_number FROM numbering n;
END $$;

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

-- Submits by SQL ----------------------------------------------------------------------------------

-- What the nodes hold submits against, for those that come by SQL: one row, which nodes
-- write when they start and when something changes. refusal is why none is taken, null when they
-- are; a quota of 0 is none.
CREATE TABLE submit_limits (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  refusal       text,
  context_bytes bigint  NOT NULL CHECK (context_bytes > 0),
  pending_tasks bigint  NOT NULL CHECK (pending_tasks >= 0)
);
INSERT INTO submit_limits (context_bytes, pending_tasks) VALUES (262144, 0);

-- submit_task is called by roles that may do nothing else here. It finds its names in this
-- schema alone, and so do the functions that it calls: a temporary table of the caller's must
-- not take the place of one of ours.

-- submit_duration writes a time as the API does: 4320h0m0s.
CREATE FUNCTION submit_duration(seconds numeric) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN seconds < 0 THEN '-' ELSE '' END
    || CASE WHEN s >= 3600 THEN div(s, 3600) || 'h' ELSE '' END
    || CASE WHEN s >= 60 THEN mod(div(s, 60), 60) || 'm' ELSE '' END
    || trim_scale(mod(s, 60)) || 's'
  FROM (SELECT abs(seconds) AS s) a
$$;

-- submit_depth tells how deep a JSON document is nested, or 0 if it has so few brackets that
-- it doesn't matter.
CREATE FUNCTION submit_depth(doc text, most int) RETURNS int
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF length(doc) - length(translate(doc, '[{', '')) <= most THEN
    RETURN 0;
  END IF;
  doc := regexp_replace(doc, '"(?:[^"\\]|\\.)*"', '', 'g');
  doc := regexp_replace(doc, '[^][{}]+', '', 'g');
  RETURN (SELECT max(d) FROM (SELECT sum(CASE WHEN c IN ('[', '{') THEN 1 ELSE -1 END) OVER (ORDER BY i) AS d
    FROM unnest(string_to_array(doc, NULL)) WITH ORDINALITY AS u (c, i)) depths);
END $$;

-- submit_sqlstate returns the SQLSTATE of a refusal, by its code.
CREATE FUNCTION submit_sqlstate(code text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE code
    WHEN 'invalid_argument'   THEN '22023' -- invalid_parameter_value
    WHEN 'invalid_dependency' THEN '23503' -- foreign_key_violation
    WHEN 'too_large'          THEN '54000' -- program_limit_exceeded
    WHEN 'not_found'          THEN '42704' -- undefined_object
    WHEN 'key_reused'         THEN '23505' -- unique_violation
    WHEN 'quota_exceeded'     THEN '53400' -- configuration_limit_exceeded
    WHEN 'tenant_suspended'   THEN '55000' -- object_not_in_prerequisite_state
    WHEN 'conflict'           THEN '40001' -- serialization_failure
  END
$$;

-- submit_check returns the refusal of what the API would refuse, in its words.
CREATE FUNCTION submit_check(type text, context json, key text, priority int, run_at timestamptz, flow_key text,
  key_window interval, context_limit bigint, now timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  size     bigint := octet_length(convert_to(context::text, 'UTF8'));
  seconds  numeric := extract(epoch FROM key_window);
  fields   text[] := '{}';
  problems text[] := '{}';
  problem  text;
  refusal  text[];
BEGIN
  problem := CASE
    WHEN coalesce(type, '') = '' THEN 'is required'
    WHEN octet_length(type) > 40 THEN format('is %s characters long; the limit is 40', octet_length(type))
    WHEN type COLLATE "C" !~ '^[a-z]' THEN 'must start with a lower-case letter'
    WHEN type COLLATE "C" !~ '^[a-z0-9_-]+$' THEN 'may hold lower-case letters, digits, - and _ only'
  END;
  fields := fields || 'type'::text; problems := problems || problem;

  problem := CASE
    WHEN context IS NULL THEN 'is required'
    WHEN size > context_limit THEN format('is %s bytes; the limit is %s', size, context_limit)
    WHEN submit_depth(context::text, 128) > 128 THEN 'is nested more than 128 deep'
  END;
  fields := fields || 'context'::text; problems := problems || problem;

  problem := CASE WHEN priority NOT BETWEEN 0 AND 31536000
    THEN format('is %s; it must be 0 to 31536000 seconds (a year)', priority) END;
  fields := fields || 'priority'::text; problems := problems || problem;

  problem := CASE
    WHEN key = '' THEN 'must not be empty'
    WHEN octet_length(key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(key))
  END;
  fields := fields || 'key'::text; problems := problems || problem;

  problem := CASE
    WHEN key = '' OR octet_length(key) > 255 THEN NULL
    WHEN seconds <> 0 AND key IS NULL THEN 'needs a key'
    WHEN seconds NOT BETWEEN 0 AND 15552000 THEN format('is %s; it must be up to 4320h0m0s (180 days)', submit_duration(seconds))
  END;
  fields := fields || 'key_window'::text; problems := problems || problem;

  problem := CASE
    WHEN flow_key = '' THEN 'must not be empty'
    WHEN octet_length(flow_key) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(flow_key))
  END;
  fields := fields || 'flow_key'::text; problems := problems || problem;

  problem := CASE WHEN run_at > now + interval '365 days' THEN 'is more than 8760h0m0s (a year) ahead' END;
  fields := fields || 'run_at'::text; problems := problems || problem;

  SELECT ARRAY[CASE WHEN size > context_limit THEN 'too_large' ELSE 'invalid_argument' END,
    string_agg(field || ' ' || what, '; ' ORDER BY i), (array_agg(field ORDER BY i))[1]] INTO refusal
  FROM unnest(fields, problems) WITH ORDINALITY AS p (field, what, i) WHERE what IS NOT NULL HAVING count(*) > 0;
  RETURN refusal;
END $$;

-- submit_table returns the name of a rolled table. It is qualified, as it may not be there: a
-- temporary table of that name must not be taken for it.
CREATE FUNCTION submit_table(kind text, table_set text, roll int) RETURNS text
LANGUAGE sql STABLE AS $$
  SELECT format('%I.%I', current_schema(), concat_ws('_', kind, nullif(table_set, ''), roll))
$$;

-- submit_place returns where a type's new tasks go, and keeps that roll from being sealed and the
-- type from being deleted until the transaction ends. spec is null when there is no such type; roll
-- is null when a snapshot shows a type that is gone, was made again or has other tables by now, 0
-- when it is of another history. Later rolls are looked up by name, as a snapshot may be older than
-- they are. A roll is sealed after the next one was made, and never while we hold it. The roll of the
-- snapshot must be of this history; then all later ones are: a history ends all transactions of the
-- one before.
CREATE FUNCTION submit_place(type text, OUT type_number int, OUT spec json, OUT table_set text, OUT roll int)
LANGUAGE plpgsql AS $$
BEGIN
  LOOP
    SELECT t.number, t.spec, s.name, s.end_pos INTO type_number, spec, table_set, roll
    FROM task_types t JOIN table_sets s ON s.name = t.table_set WHERE t.name = submit_place.type;
    IF NOT FOUND THEN
      RETURN;
    END IF;
    PERFORM FROM rolls r WHERE r.table_set = submit_place.table_set AND r.position = submit_place.roll
      AND r.history <> history('rolls'::regclass);
    IF FOUND THEN
      roll := 0;
      RETURN;
    END IF;
    WHILE to_regclass(submit_table('task', table_set, roll + 1)) IS NOT NULL LOOP
      roll := roll + 1;
    END LOOP;
    BEGIN
      EXECUTE format('LOCK TABLE %s, %s IN ROW EXCLUSIVE MODE', submit_table('task', table_set, roll),
        submit_table('ready', table_set, roll));
      IF current_setting('transaction_isolation') <> 'read committed' THEN
        PERFORM FROM task_types t WHERE t.name = submit_place.type FOR KEY SHARE; -- fails if it was deleted or moved
      END IF;
    EXCEPTION WHEN undefined_table OR serialization_failure THEN
      roll := NULL;
      RETURN;
    END;
    CONTINUE WHEN to_regclass(submit_table('task', table_set, roll + 1)) IS NOT NULL;
    PERFORM FROM task_types t WHERE t.name = submit_place.type AND t.number = type_number
      AND t.table_set = submit_place.table_set;
    EXIT WHEN FOUND;
  END LOOP;
END $$;

-- submit_window returns how long a key stands for a task, which is kept for a time: no longer than that.
CREATE FUNCTION submit_window(key_window interval, keep interval) RETURNS interval
LANGUAGE sql IMMUTABLE AS $$
  SELECT coalesce(nullif(key_window, interval '0'), least(interval '24 hours', keep))
$$;

-- submit_claim has a key stand for a task, and returns the task that it stands for: this
-- one, or an earlier one; same reports whether that has the same context. It waits for other
-- transactions that have the key. A key whose task was dropped with its roll stands for none
-- any more.
CREATE FUNCTION submit_claim(type text, key text, number bigint, context json, expires timestamptz, now timestamptz,
  OUT owner bigint, OUT same boolean)
LANGUAGE plpgsql AS $$
DECLARE
  digest bytea := sha256(convert_to(context::text, 'UTF8'));
  first  bigint := (SELECT coalesce(e.first_pos, s.first_pos)::bigint << 40
    FROM task_types t JOIN table_sets s ON s.name = t.table_set LEFT JOIN table_sets e ON e.name = t.earlier_set
    WHERE t.name = submit_claim.type);
BEGIN
  LOOP
    INSERT INTO idempotency_keys AS k (type, key, id, hash, expires_at)
    VALUES (submit_claim.type, submit_claim.key, number, digest, expires)
    ON CONFLICT ON CONSTRAINT idempotency_keys_pkey DO UPDATE SET id = excluded.id, hash = excluded.hash, expires_at = excluded.expires_at
    WHERE k.expires_at <= submit_claim.now OR k.id < first;
    IF FOUND THEN
      owner := number;
      same := true;
      RETURN;
    END IF;
    SELECT k.id, k.hash = digest INTO owner, same FROM idempotency_keys k
    WHERE k.type = submit_claim.type AND k.key = submit_claim.key;
    IF FOUND THEN -- else it has expired and was deleted in between
      RETURN;
    END IF;
  END LOOP;
END $$;

-- submit_id writes a task's id as the API does.
CREATE FUNCTION submit_id(type text, number bigint) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
  SELECT type || '.' || (number >> 40) || '.' || (number & (1::bigint << 40) - 1)
$$;

-- submit_quota returns the refusal of a task that the quota of pending tasks has no room for.
CREATE FUNCTION submit_quota(quota bigint) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  used bigint;
BEGIN
  IF quota = 0 THEN
    RETURN NULL;
  END IF;
  SELECT coalesce(sum(submitted - succeeded - failed - cancelled), 0) INTO used FROM tallies;
  IF used >= quota THEN
    RETURN ARRAY['quota_exceeded', format('the tenant''s quota pending_tasks is %s, and %s are in use', quota, used), ''];
  END IF;
  RETURN NULL;
END $$;

-- submit_write writes a task with its first token row, and tells the dispatchers, who hear of
-- it when the transaction is committed. What they are told is rounded down to a second, so
-- that Postgres sends it once for many tasks of a transaction; and it is numbers, as every role can
-- listen.
CREATE FUNCTION submit_write(table_set text, type_number int, type text, number bigint, now timestamptz,
  order_time timestamptz, options json, context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  roll int := number >> 40;
BEGIN
  EXECUTE format('INSERT INTO %s (type, id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5, $6)',
    submit_table('task', table_set, roll)) USING type_number, number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_write.type, submit_write.now, 1);
  IF order_time > now + interval '1 minute' THEN
    INSERT INTO wait (type, order_time, id, seq, stage, attempt, reason, until, key)
    VALUES (type_number, submit_write.order_time, number, 1, submit_write.stage, 1, 'delay',
      submit_write.order_time, flow_key);
    RETURN;
  END IF;
  EXECUTE format('INSERT INTO %s (type, order_time, id, seq, stage, attempt, key, since) VALUES ($1, $2, $3, 1, $4, 1, $5, $6)',
    submit_table('ready', table_set, roll)) USING type_number, order_time, number, stage, flow_key,
    CASE WHEN order_time <= now - interval '1 s' THEN now END;
  PERFORM pg_notify('asyncflow_wake', format('0 %s %s %s', to_regnamespace(quote_ident(current_schema()))::oid, type_number,
    floor(extract(epoch FROM order_time))::bigint * 1000000));
END $$;

-- submit_number returns the number of a task id such as resize.1.7; null: it is none.
CREATE FUNCTION submit_number(task text) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN task COLLATE "C" ~ '^[a-z][a-z0-9_-]{0,39}[.][1-9][0-9]{0,6}[.][1-9][0-9]{0,12}$' THEN
    CASE WHEN split_part(task, '.', 2)::bigint < 1 << 22 AND split_part(task, '.', 3)::bigint < 1::bigint << 40
      THEN (split_part(task, '.', 2)::bigint << 40) + split_part(task, '.', 3)::bigint END END
$$;

-- submit_seconds returns the seconds of a duration such as 1h30m; null: it is none.
CREATE FUNCTION submit_seconds(duration text) RETURNS numeric
LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE
    WHEN duration = '0' THEN 0
    WHEN length(duration) <= 40 AND duration ~ '^-?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|ms|s|m|h))+$' THEN
      CASE WHEN duration LIKE '-%' THEN -1 ELSE 1 END * (
        SELECT sum(m[1]::numeric * CASE m[2] WHEN 'h' THEN 3600 WHEN 'm' THEN 60 WHEN 's' THEN 1 WHEN 'ms' THEN 0.001
          WHEN 'us' THEN 0.000001 ELSE 0.000000001 END)
        FROM regexp_matches(duration, '([0-9.]+)(ns|us|ms|s|m|h)', 'g') m)
  END
$$;

-- submit_check_edge returns what the API would refuse in one entry of depends_on, in its words.
CREATE FUNCTION submit_check_edge(edge json) RETURNS TABLE (field text, what text)
LANGUAGE plpgsql AS $$
DECLARE
  task    text    := edge ->> 'task';
  name    text    := coalesce(edge ->> 'type', '');
  own     text    := coalesce(edge ->> 'key', '');
  failure text    := coalesce(edge ->> 'on_failure', '');
  wait    text    := edge ->> 'wait_for';
  seconds numeric := submit_seconds(wait);
BEGIN
  IF json_typeof(edge) <> 'object' THEN
    RETURN QUERY VALUES ('', 'must be an object');
    RETURN;
  END IF;
  RETURN QUERY SELECT '.' || left(f.k, 40),
    CASE WHEN f.k IN ('task', 'type', 'key', 'on_failure', 'wait_for') THEN 'must be a string' ELSE 'is not a known field' END
  FROM json_each(edge) AS f (k, v)
  WHERE f.k NOT IN ('task', 'type', 'key', 'on_failure', 'wait_for') OR json_typeof(f.v) <> 'string';
  IF FOUND THEN
    RETURN;
  ELSIF task IS NOT NULL AND submit_number(task) IS NULL THEN
    RETURN QUERY VALUES ('.task', 'id must look like thumbnails.1.42 (type.position.number)');
    RETURN;
  END IF;
  RETURN QUERY SELECT p.field, p.what FROM (VALUES
    (1, '.task', CASE
      WHEN task IS NOT NULL AND (name <> '' OR own <> '') THEN 'excludes type and key'
      WHEN task IS NULL AND name = '' THEN 'is required, or type and key' END),
    (2, '.key', CASE
      WHEN task IS NULL AND name <> '' AND own = '' THEN 'is required with type'
      WHEN octet_length(own) > 255 THEN format('is %s bytes long; the limit is 255', octet_length(own)) END),
    (3, '.type', CASE
      WHEN octet_length(name) > 40 THEN format('is %s characters long; the limit is 40', octet_length(name))
      WHEN name <> '' AND name COLLATE "C" !~ '^[a-z]' THEN 'must start with a lower-case letter'
      WHEN name <> '' AND name COLLATE "C" !~ '^[a-z0-9_-]+$' THEN 'may hold lower-case letters, digits, - and _ only' END),
    (4, '.on_failure', CASE WHEN failure NOT IN ('', 'fail', 'cancel', 'run')
      THEN format('is "%s"; it must be fail, cancel or run', left(failure, 40)) END),
    (5, '.wait_for', CASE
      WHEN wait IS NOT NULL AND seconds IS NULL
        THEN format('is "%s"; it must be: a Go-style duration, such as 30s or 1h30m', left(wait, 40))
      WHEN seconds NOT BETWEEN 0 AND 31536000
        THEN format('is %s; it must be up to 8760h0m0s (a year)', submit_duration(seconds)) END)
  ) AS p (place, field, what) WHERE p.what IS NOT NULL ORDER BY p.place;
END $$;

-- submit_check_edges returns the refusal of a depends_on and context_from that the API would refuse.
CREATE FUNCTION submit_check_edges(depends_on json, context_from text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  entries int;
  refusal text[];
BEGIN
  IF json_typeof(depends_on) <> 'array' THEN
    RETURN ARRAY['invalid_argument', 'depends_on must be an array of 0 to 100 entries, each an object', 'depends_on'];
  END IF;
  entries := coalesce(json_array_length(depends_on), 0);
  IF entries > 100 THEN
    RETURN ARRAY['invalid_argument', format('depends_on has %s entries; the limit is 100', entries), 'depends_on'];
  END IF;
  SELECT ARRAY['invalid_argument', string_agg(p.field || ' ' || p.what, '; ' ORDER BY p.i), (array_agg(p.field ORDER BY p.i))[1]]
  INTO refusal FROM (
    SELECT row_number() OVER () AS i, q.field, q.what FROM (
      SELECT format('depends_on[%s]', u.i - 1) || c.field, c.what
      FROM json_array_elements(depends_on) WITH ORDINALITY AS u (e, i), submit_check_edge(u.e) c
      UNION ALL
      SELECT 'context_from', CASE WHEN context_from <> 'dependencies'
        THEN format('is "%s"; it must be dependencies', left(context_from, 40)) ELSE 'needs depends_on' END
      WHERE context_from <> 'dependencies' OR context_from <> '' AND entries = 0) AS q (field, what)) p
  HAVING count(*) > 0;
  RETURN refusal;
END $$;

-- submit_exists reports whether a task exists. Its roll may be dropped at any time.
CREATE FUNCTION submit_exists(table_set text, type_number int, number bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  it_does boolean;
BEGIN
  EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE type = $1 AND id = $2)',
    submit_table('task', table_set, (number >> 40)::int)) INTO it_does USING type_number, number;
  RETURN it_does;
EXCEPTION WHEN undefined_table THEN
  RETURN false;
END $$;

-- submit_above returns how many tasks wait for a key, one after the other: a task that waits for the
-- key, one that waits for that task, and so on. It reads at most 100,000 edges, so it may be more.
CREATE FUNCTION submit_above(own_type int, own_id bigint, own_key text) RETURNS int
LANGUAGE plpgsql AS $$
DECLARE
  depth int      := 0;
  seen  int      := 0;
  types int[]    := ARRAY[own_type];
  ids   bigint[] := ARRAY[NULL::bigint];
  keys  text[]   := ARRAY[own_key];
BEGIN
  WHILE depth <= 100 AND seen < 100000 LOOP
    SELECT array_agg(l.type), array_agg(l.id), array_agg(l.key) INTO types, ids, keys FROM (
      SELECT DISTINCT o.type, o.id, o.key FROM (
        SELECT e.type, e.id, e.key FROM unnest(types, ids) AS u (type, id)
        JOIN edges e ON e.on_type = u.type AND e.on_id = ANY (ARRAY[u.id]) AND e.status IS NULL
        WHERE NOT (e.type = own_type AND e.id = own_id)
          AND EXISTS (SELECT FROM wait w WHERE w.type = e.type AND w.id = e.id AND w.reason = 'dependencies')
        UNION ALL
        SELECT e.type, e.id, e.key FROM unnest(types, keys) AS u (type, key)
        JOIN edges e ON e.on_type = u.type AND e.on_key = ANY (ARRAY[u.key]) AND e.on_id IS NULL AND e.status IS NULL
        WHERE NOT (e.type = own_type AND e.id = own_id)
          AND EXISTS (SELECT FROM wait w WHERE w.type = e.type AND w.id = e.id AND w.reason = 'dependencies')
        LIMIT 100000 - seen) o) l;
    EXIT WHEN ids IS NULL;
    depth := depth + 1;
    seen := seen + cardinality(ids);
  END LOOP;
  RETURN depth;
END $$;

-- submit_chain returns what is wrong with the open edges that lead on from a new task by way of the
-- tasks (types, ids) that it waits for; null: nothing. depth is the length of the chain as far as these.
CREATE FUNCTION submit_chain(own_type int, own_id bigint, depth int, types int[], ids bigint[]) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
  seen int := 0;
  more int;
BEGIN
  LOOP
    IF depth > 100 THEN
      RETURN 'makes a chain of more than 100 dependencies';
    ELSIF EXISTS (SELECT FROM unnest(types, ids) AS u (type, id) WHERE u.type = own_type AND u.id = own_id) THEN
      RETURN 'makes a cycle: that task waits for this one';
    END IF;
    SELECT array_agg(l.type), array_agg(l.id), sum(l.edges) INTO types, ids, more FROM (
      SELECT o.type, o.id, count(*) AS edges FROM (
        SELECT e.on_type AS type, coalesce(e.on_id, k.id) AS id
        FROM unnest(types, ids) AS u (type, id)
        JOIN edges e ON e.type = u.type AND e.id = ANY (ARRAY[u.id]) AND e.status IS NULL
        LEFT JOIN task_types y ON y.number = e.on_type AND e.on_id IS NULL
        LEFT JOIN idempotency_keys k ON k.type = y.name AND k.key = e.on_key
        WHERE coalesce(e.on_id, k.id) IS NOT NULL AND EXISTS (
          SELECT FROM wait w WHERE w.type = e.type AND w.id = e.id AND w.reason = 'dependencies') LIMIT 100001 - seen) o
      GROUP BY 1, 2) l;
    EXIT WHEN ids IS NULL;
    seen := seen + more;
    IF seen > 100000 THEN
      RETURN 'leads to too many tasks that wait; the limit is 100000';
    END IF;
    depth := depth + 1;
  END LOOP;
  RETURN NULL;
END $$;

-- submit_edges adds the edges of a new task, and returns the refusal of the first that can't be. It
-- keeps the types from being deleted until the transaction ends. It doesn't see the edges of other
-- open transactions: a node looks for cycles again after the commit.
CREATE FUNCTION submit_edges(own_type int, own_id bigint, own_key text, depends_on json, now timestamptz) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
  edge    record;
  other   record;
  above   int;
  problem text;
BEGIN
  FOR edge IN
    SELECT u.i - 1 AS n, u.e ->> 'task' AS task, submit_number(u.e ->> 'task') AS id, u.e ->> 'key' AS key,
      coalesce(split_part(u.e ->> 'task', '.', 1), u.e ->> 'type') AS type,
      coalesce(nullif(u.e ->> 'on_failure', ''), 'fail') AS on_failure,
      coalesce(nullif(make_interval(secs => submit_seconds(u.e ->> 'wait_for')::float8), interval '0'),
        CASE WHEN u.e ->> 'task' IS NULL THEN interval '168:00' END) AS wait_for
    FROM json_array_elements(depends_on) WITH ORDINALITY AS u (e, i)
  LOOP
    SELECT t.number, CASE WHEN edge.id >> 40 < t.from_pos THEN t.earlier_set ELSE t.table_set END AS table_set,
      coalesce(b.first_pos, s.first_pos)::bigint << 40 AS first INTO other
    FROM task_types t JOIN table_sets s ON s.name = t.table_set LEFT JOIN table_sets b ON b.name = t.earlier_set
    WHERE t.name = edge.type FOR KEY SHARE OF t;
    problem := CASE
      WHEN other.number IS NULL THEN format('names the task type %s, which doesn''t exist', edge.type)
      WHEN other.number = own_type AND (edge.id = own_id OR edge.key = own_key) THEN 'is the task itself'
      WHEN edge.id IS NOT NULL AND NOT submit_exists(other.table_set, other.number, edge.id)
        THEN format('names the task %s, which doesn''t exist', edge.task)
    END;
    IF problem IS NOT NULL THEN
      RETURN ARRAY['invalid_dependency', format('depends_on[%s] %s', edge.n, problem), format('depends_on[%s]', edge.n)];
    END IF;
    INSERT INTO edges (type, id, n, on_type, on_id, on_key, on_failure, until, key, wait_for)
    VALUES (own_type, own_id, edge.n, other.number, coalesce(edge.id, (SELECT k.id FROM idempotency_keys k
      WHERE k.type = edge.type AND k.key = edge.key AND k.expires_at > submit_edges.now AND k.id >= other.first)),
      edge.key, edge.on_failure, submit_edges.now + edge.wait_for, own_key, edge.wait_for);
  END LOOP;

  above := CASE WHEN own_key IS NULL THEN 0 ELSE submit_above(own_type, own_id, own_key) END;
  SELECT submit_chain(own_type, own_id, above + 1, array_agg(e.on_type), array_agg(e.on_id)) INTO problem
  FROM edges e WHERE e.type = own_type AND e.id = own_id;
  IF problem IS NULL THEN
    RETURN NULL;
  END IF;
  SELECT e.n, c.what INTO edge
  FROM edges e, LATERAL submit_chain(own_type, own_id, above + 1, ARRAY[e.on_type], ARRAY[e.on_id]) AS c (what)
  WHERE e.type = own_type AND e.id = own_id AND c.what IS NOT NULL ORDER BY e.n LIMIT 1;
  RETURN ARRAY['invalid_dependency', format('depends_on[%s] %s', coalesce(edge.n, 0), coalesce(edge.what, problem)),
    format('depends_on[%s]', coalesce(edge.n, 0))];
END $$;

-- submit_wait is submit_write for a task that waits for others: a node looks at its edges.
CREATE FUNCTION submit_wait(table_set text, type_number int, type text, number bigint, now timestamptz,
  order_time timestamptz, options json, context json, stage text, flow_key text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('INSERT INTO %s (type, id, created_at, order_time, options, context) VALUES ($1, $2, $3, $4, $5, $6)',
    submit_table('task', table_set, (number >> 40)::int)) USING type_number, number, now, order_time, options, context;
  INSERT INTO tallies (type, at, submitted) VALUES (submit_wait.type, submit_wait.now, 1);
  INSERT INTO wait (type, order_time, id, seq, stage, attempt, reason, until, key, since)
  VALUES (type_number, submit_wait.order_time, number, 1, submit_wait.stage, 1, 'dependencies', '9999-01-01 00:00:00+00',
    flow_key, CASE WHEN submit_wait.order_time <= submit_wait.now - interval '1 s' THEN submit_wait.now END);
  INSERT INTO outbox (kind, due, type, id) VALUES ('submitted', submit_wait.now, type_number, number);
  PERFORM pg_notify('asyncflow_wake', format('0 %s', to_regnamespace(quote_ident(current_schema()))::oid));
END $$;

-- submit_task submits a task in the caller's transaction, and returns its id.
CREATE FUNCTION submit_task(type text, context json, key text DEFAULT NULL, priority int DEFAULT NULL, run_at timestamptz DEFAULT NULL,
  flow_key text DEFAULT NULL, key_window interval DEFAULT NULL, depends_on json DEFAULT NULL, context_from text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  now     timestamptz := clock_timestamp();
  most    submit_limits;
  place   record;
  number  bigint;
  claimed record;
  keep    interval;
  refusal text[];
  late    text[];
  edges   int;
  orders  timestamptz;
  options json;
BEGIN
  <<trying>> -- it is left with a refusal, or the function with an id
  BEGIN
    SELECT * INTO STRICT most FROM submit_limits;
    IF most.refusal IS NOT NULL THEN
      refusal := ARRAY['tenant_suspended', most.refusal, ''];
      EXIT trying;
    END IF;
    refusal := submit_check(type, context, key, priority, run_at, flow_key, key_window, most.context_bytes, now);
    IF depends_on IS NOT NULL OR context_from IS NOT NULL THEN
      late := submit_check_edges(depends_on, context_from);
      refusal := CASE WHEN late IS NULL OR refusal IS NULL THEN coalesce(refusal, late)
        ELSE ARRAY[refusal[1], refusal[2] || '; ' || late[2], refusal[3]] END;
    END IF;
    EXIT trying WHEN refusal IS NOT NULL;

    place := submit_place(type);
    IF place.spec IS NULL THEN
      refusal := ARRAY['not_found', 'there is no task type ' || type, 'type'];
      EXIT trying;
    ELSIF place.roll = 0 THEN
      refusal := ARRAY['conflict', 'the database was restored or has failed over, and no node of asyncflow has made new tables for '
        || type || ' yet; try it again', ''];
      EXIT trying;
    ELSIF place.roll IS NULL THEN -- a snapshot shows a type that is gone, or was made again since
      refusal := ARRAY['conflict', 'the task type ' || type || ' has changed since this transaction began; try it again', ''];
      EXIT trying;
    END IF;

    number := (place.roll::bigint << 40) + (1::bigint << 39) + nextval('submit_numbers');
    IF key IS NOT NULL THEN
      keep := (place.spec ->> 'retention')::interval;
      IF key_window > keep THEN
        refusal := ARRAY['invalid_argument', format('key_window is %s; tasks of %s are kept for %s',
          submit_duration(extract(epoch FROM key_window)), type, submit_duration(extract(epoch FROM keep))), 'key_window'];
        EXIT trying;
      END IF;
      claimed := submit_claim(type, key, number, context, now + submit_window(key_window, keep), now);
      IF NOT claimed.same THEN
        refusal := ARRAY['key_reused',
          format('key stands for task %s, which has another context', submit_id(type, claimed.owner)), 'key'];
        EXIT trying;
      ELSIF claimed.owner <> number THEN
        RETURN submit_id(type, claimed.owner);
      END IF;
    END IF;
    refusal := submit_quota(most.pending_tasks);
    EXIT trying WHEN refusal IS NOT NULL;

    edges := nullif(json_array_length(depends_on), 0);
    orders := CASE WHEN run_at > now THEN run_at
      ELSE now - make_interval(secs => coalesce(priority, (place.spec #>> '{stages,0,priority}')::int, 0)) END;
    options := nullif(json_strip_nulls(json_build_object('priority', priority, 'key', key, 'flow_key', flow_key,
      'depends_on', edges, 'context_from', nullif(context_from, '')))::text, '{}')::json;
    IF place.spec -> 'flow' IS NULL THEN
      flow_key := NULL;
    END IF;
    IF edges IS NULL THEN
      PERFORM submit_write(place.table_set, place.type_number, type, number, now, orders, options, context,
        place.spec #>> '{stages,0,name}', flow_key);
    ELSE
      refusal := submit_edges(place.type_number, number, key, depends_on, now);
      EXIT trying WHEN refusal IS NOT NULL;
      PERFORM submit_wait(place.table_set, place.type_number, type, number, now, orders, options, context,
        place.spec #>> '{stages,0,name}', flow_key);
    END IF;
    RETURN submit_id(type, number);
  END trying;
  RAISE EXCEPTION USING MESSAGE = refusal[2], DETAIL = refusal[1], COLUMN = refusal[3], ERRCODE = submit_sqlstate(refusal[1]);
END $$;

-- No other role may run these functions without a grant. A new role's defaults have seen to it;
-- otherwise REVOKE does, which reads the functions of all tenants.
DO $$ BEGIN
  IF EXISTS (SELECT FROM pg_roles r
    LEFT JOIN pg_default_acl d ON defaclrole = r.oid AND defaclnamespace = 0 AND defaclobjtype = 'f',
      aclexplode(coalesce(defaclacl, acldefault('f', r.oid))) a
    WHERE rolname = current_user AND a.grantee = 0) THEN
    EXECUTE format('REVOKE ALL ON ALL FUNCTIONS IN SCHEMA %I FROM PUBLIC', current_schema());
  END IF;
END $$;

-- +goose StatementEnd
