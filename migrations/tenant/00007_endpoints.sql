-- +goose Up

-- What deliveries to an endpoint are signed with: several at a time while one is rotated
-- away. sealed begins with what names its key (AES-256-GCM); those that were made
-- before this migration don't, and have the endpoint's id.
CREATE TABLE endpoint_secrets (
  id         uuid        PRIMARY KEY,
  endpoint   uuid        NOT NULL REFERENCES endpoints (id) ON DELETE CASCADE,
  kind       text        NOT NULL CHECK (kind IN ('hmac', 'ed25519')),
  sealed     bytea       NOT NULL,
  public_key text        NOT NULL DEFAULT '' CHECK ((kind = 'ed25519') = (public_key <> '')),
  created_at timestamptz NOT NULL,
  expires_at timestamptz
);
CREATE INDEX ON endpoint_secrets (endpoint);
INSERT INTO endpoint_secrets (id, endpoint, kind, sealed, created_at)
  SELECT id, id, 'hmac', secret, created_at FROM endpoints;

-- outbound is sealed: headers, auth and certificates. A challenged endpoint gets no
-- deliveries until it is verified; those there are were never challenged.
ALTER TABLE endpoints
  DROP COLUMN secret,
  ADD COLUMN weight             smallint    NOT NULL DEFAULT 1 CHECK (weight BETWEEN 0 AND 100),
  ADD COLUMN outbound           bytea,
  ADD COLUMN challenged         boolean     NOT NULL DEFAULT false,
  ADD COLUMN verified_at        timestamptz,
  ADD COLUMN verification_error text        NOT NULL DEFAULT '',
  ADD COLUMN updated_at         timestamptz;
UPDATE endpoints SET updated_at = created_at;
ALTER TABLE endpoints ALTER COLUMN updated_at SET NOT NULL;

-- +goose Down
-- Each endpoint keeps its newest secret. Earlier versions can only read those that they
-- have sealed themselves.
ALTER TABLE endpoints ADD COLUMN secret bytea;
UPDATE endpoints e SET secret = coalesce(
  (SELECT s.sealed FROM endpoint_secrets s WHERE s.endpoint = e.id ORDER BY s.expires_at IS NULL DESC, s.created_at DESC LIMIT 1), '');
ALTER TABLE endpoints
  ALTER COLUMN secret SET NOT NULL,
  DROP COLUMN weight,
  DROP COLUMN outbound,
  DROP COLUMN challenged,
  DROP COLUMN verified_at,
  DROP COLUMN verification_error,
  DROP COLUMN updated_at;
DROP TABLE endpoint_secrets;
