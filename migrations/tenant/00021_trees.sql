-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

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

-- The tasks that tasks depend on: the n-th of a task (type, id) is the task (on_type, on_id), or
-- the one with a key. status says how that has ended; until it has, the edge is open. It is late
-- when that has not ended until then, and gone when that was dropped.
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
  PRIMARY KEY (type, id, n)
);
CREATE INDEX ON edges (on_type, on_id) WHERE status IS NULL AND on_id IS NOT NULL;
CREATE INDEX ON edges (on_type, on_key) WHERE status IS NULL AND on_key IS NOT NULL;
CREATE INDEX ON edges (on_type, on_id) WHERE status <> 'succeeded';
CREATE INDEX ON edges (until) WHERE status IS NULL AND until IS NOT NULL;

-- Since when somebody has waited for tasks of the type; null: nobody ever has.
ALTER TABLE task_types ADD COLUMN awaited_since timestamptz;

-- The children of a task in one stage. seq is that of the task's row in wait when it fanned out,
-- waits that of its latest one: a redrive of the failed children makes another. spawned of count
-- children are made, in runs of ids that begin with firsts, at the indexes starts. again is the
-- index at which a redrive of the failed ones goes on. closed: the task no longer waits for them.
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
  PRIMARY KEY (type, id, seq)
) WITH (fillfactor = 70);

-- +goose Down
DROP TABLE outbox, edges, fan_outs;
ALTER TABLE task_types DROP COLUMN awaited_since;
