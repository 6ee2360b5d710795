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

-- +goose Down
DROP TABLE votes;
