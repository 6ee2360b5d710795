-- +goose Up

-- How far the job erase has come with the tasks of a type in one roll: those that were submitted
-- over HTTP, or by SQL, have the numbers up to upto. It has visited all up to passed, and each of
-- these has no contents any more, or a row in content_waits. None after passed ends its retention
-- before since + that retention; infinity: there is none. closing: the roll was sealed before this
-- pass began, so that the pass misses no task.
CREATE TABLE content_cursors (
  type    int         NOT NULL REFERENCES task_types (number) ON DELETE CASCADE,
  upto    bigint      NOT NULL,
  passed  bigint      NOT NULL,
  since   timestamptz NOT NULL,
  closing boolean     NOT NULL DEFAULT false,
  PRIMARY KEY (type, upto)
) WITH (fillfactor = 50);

-- The tasks that the job has visited and left with their contents. A final one has its end as since;
-- one that was live has the time of that visit.
CREATE TABLE content_waits (
  type  int         NOT NULL,
  id    bigint      NOT NULL,
  since timestamptz NOT NULL,
  PRIMARY KEY (type, id)
) WITH (vacuum_truncate = off,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000);
CREATE INDEX ON content_waits (type, since);
