-- +goose Up

-- The tasks that attempts started: a row for each attempt (type, id, seq) that counted as done
-- and started any. tasks is what to make of them, as JSON, until all are made; hash tells it apart
-- from what another report has. types and ids are the tasks that are made, in their order: an
-- existing task with the key of one stands in its place, and zeros for one of a type that is gone.
-- depth is how many tasks in a row have started one another.
CREATE TABLE spawns (
  type   int      NOT NULL,
  id     bigint   NOT NULL,
  seq    smallint NOT NULL,
  depth  smallint NOT NULL,
  count  int      NOT NULL,
  hash   bytea    NOT NULL,
  tasks  text,
  types  int[]    NOT NULL DEFAULT '{}',
  ids    bigint[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (type, id, seq)
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 20000,
  toast.autovacuum_vacuum_cost_delay = 0);
