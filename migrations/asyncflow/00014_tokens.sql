-- +goose Up

-- Tokens that asyncflow token create and asyncflow dev have made with this database at hand, and
-- tokens of any issuer that were revoked: nodes refuse these until they expire. Only what names a
-- token is here, never the token. A node of the version before refuses none.
CREATE TABLE tokens (
  issuer     text        NOT NULL,
  id         text        NOT NULL,
  kind       text,
  tenant     text,
  subject    text,
  scopes     text,
  made_at    timestamptz,
  made_by    text,
  expires_at timestamptz NOT NULL,
  revoked_at timestamptz,
  revoked_by text,
  PRIMARY KEY (issuer, id)
);
CREATE INDEX ON tokens (expires_at);
CREATE INDEX ON tokens (revoked_at) WHERE revoked_at IS NOT NULL;
