-- +goose Up

-- Who did what that belongs to no tenant: operators' calls, the command line's
-- work in the database, calls that were denied without a tenant being known. The columns
-- are those of a tenant's table.
CREATE TABLE audit (
  id          uuid        PRIMARY KEY,
  at          timestamptz NOT NULL,
  origin      text        NOT NULL CHECK (origin IN ('api', 'cli')),
  tenant      text,
  subject     text,
  token_id    text,
  issuer      text,
  scopes      text,
  action      text        NOT NULL,
  object_type text,
  object      text,
  address     text,
  proxy       text,
  request_id  text,
  user_agent  text,
  outcome     text        NOT NULL CHECK (outcome IN ('done', 'refused', 'denied', 'failed')),
  status      smallint,
  code        text,
  detail      json,
  claimed     json,
  calls       bigint      NOT NULL DEFAULT 1 CHECK (calls > 0),
  last_at     timestamptz
);
CREATE INDEX ON audit (at, id);

-- Rows are only ever added: an UPDATE changes nothing, and a DELETE passes over what is
-- younger than a day, whoever asks, the owner and superusers too. A role that may only
-- INSERT and SELECT can do all that requests need.
CREATE RULE audit_never_changes AS ON UPDATE TO audit DO INSTEAD NOTHING;
CREATE RULE audit_keeps_a_day AS ON DELETE TO audit WHERE old.at > now() - interval '1 day' DO INSTEAD NOTHING;
REVOKE UPDATE, TRUNCATE ON audit FROM CURRENT_USER;

-- +goose Down
DROP TABLE audit;
