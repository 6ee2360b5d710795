-- +goose Up

-- The last run of each job of governance, on whichever node. spec is the schedule of
-- the node that started last; what is null is so until the job has run for the first
-- time. failures counts the runs that failed since one ended well.
CREATE TABLE jobs (
  name         text        PRIMARY KEY,
  spec         text        NOT NULL,
  node         text,
  started_at   timestamptz,
  duration     real,
  rows         bigint      NOT NULL DEFAULT 0,
  error        text,
  failures     int         NOT NULL DEFAULT 0,
  succeeded_at timestamptz
);

-- +goose Down
DROP TABLE jobs;
