-- +goose Up

-- spec is the document that was applied. Ready rows are written to end_pos and
-- leased from begin_pos on; the oldest tables that are kept are those of first_pos.
CREATE TABLE task_types (
  name       text        PRIMARY KEY,
  version    int         NOT NULL,
  spec       json        NOT NULL,
  first_pos  int         NOT NULL,
  begin_pos  int         NOT NULL,
  end_pos    int         NOT NULL,
  created_at timestamptz NOT NULL,
  updated_at timestamptz NOT NULL,
  CHECK (first_pos >= 1 AND begin_pos >= first_pos AND end_pos >= begin_pos)
);

-- The last position of task types that were deleted. One that is made again goes on
-- after it, so that no id ever names two tasks.
CREATE TABLE retired_types (
  name    text PRIMARY KEY,
  end_pos int  NOT NULL
);

-- One row a roll. Task numbers are allotted from next_number in blocks.
CREATE TABLE rolls (
  type        text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  position    int         NOT NULL,
  next_number bigint      NOT NULL DEFAULT 1,
  opened_at   timestamptz NOT NULL,
  PRIMARY KEY (type, position)
) WITH (fillfactor = 50);

-- secret is sealed (AES-256-GCM).
CREATE TABLE endpoints (
  id         uuid        PRIMARY KEY,
  type       text        NOT NULL REFERENCES task_types (name) ON DELETE CASCADE,
  stage      text        NOT NULL,
  url        text        NOT NULL,
  secret     bytea       NOT NULL,
  created_at timestamptz NOT NULL
);
CREATE INDEX ON endpoints (type, stage);

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

-- Always empty: a foreign key to it seals a table against inserts.
CREATE TABLE sealed (id bigint PRIMARY KEY);

-- +goose Down
DROP TABLE sealed;
DROP TABLE idempotency_keys;
DROP TABLE endpoints;
DROP TABLE rolls;
DROP TABLE retired_types;
DROP TABLE task_types;
