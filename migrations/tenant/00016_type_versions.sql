-- +goose Up

-- Earlier versions of task types, as they were applied: the latest 100 of each type, and no more
-- than 1 MiB of them. The present version is in task_types. A node that doesn't know this table
-- keeps none.
CREATE TABLE type_versions (
  name          text        NOT NULL,
  version       int         NOT NULL,
  spec          json        NOT NULL,
  stage_mapping json,
  applied_at    timestamptz NOT NULL,
  PRIMARY KEY (name, version)
);
