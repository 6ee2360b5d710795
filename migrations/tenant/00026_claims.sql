-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Who has asked for the task; null: it is pushed.
ALTER TABLE lease ADD COLUMN claimer text;
CREATE INDEX ON lease (type, claimer) WHERE claimer IS NOT NULL;

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

-- +goose Down
DROP TABLE claim_windows, claim_stages;
ALTER TABLE lease DROP COLUMN claimer;
