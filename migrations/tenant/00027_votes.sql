-- +goose Up
SELECT set_config('search_path', quote_ident(current_schema()) || ', pg_temp', true);

-- Who has claimed or cast a vote on a task; key names the task (see Child.VoteKey). late is the
-- outcome of a vote that came after the decision; such a row is kept until a time.
CREATE TABLE votes (
  type    int         NOT NULL,
  claimer text        NOT NULL,
  key     text        NOT NULL,
  late    text,
  at      timestamptz,
  until   timestamptz,
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

-- +goose Down
DROP TABLE votes, voters;
