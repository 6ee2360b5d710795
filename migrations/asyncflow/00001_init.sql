-- +goose Up

-- Each tenant is a schema; schema_version is its newest migration. version grows
-- with every change of its task types, rolls or endpoints; nodes compare it to
-- know what to read again.
CREATE TABLE tenants (
  slug           text        PRIMARY KEY CHECK (slug ~ '^[a-z][a-z0-9_-]{0,39}$'),
  schema_version bigint      NOT NULL,
  version        bigint      NOT NULL DEFAULT 1,
  created_at     timestamptz NOT NULL DEFAULT now()
);

-- Each running node writes its row every few seconds.
CREATE TABLE nodes (
  id         text        PRIMARY KEY,
  roles      text        NOT NULL,
  version    text        NOT NULL,
  started_at timestamptz NOT NULL,
  seen_at    timestamptz NOT NULL
);

-- +goose Down
DROP TABLE nodes;
DROP TABLE tenants;
