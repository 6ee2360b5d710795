-- +goose Up

-- quotas are those of the tenant's own. A suspended tenant is not leased from. A deleted
-- one isn't either, and from drop_at on it is dropped: dropping_at is since when, and
-- there is no way back from then on. Tokens issued before tokens_from are refused: they
-- are of an earlier tenant of that name.
ALTER TABLE tenants
  ADD COLUMN quotas         json        NOT NULL DEFAULT '{}',
  ADD COLUMN suspended_at   timestamptz,
  ADD COLUMN suspend_reason text,
  ADD COLUMN deleted_at     timestamptz,
  ADD COLUMN drop_at        timestamptz,
  ADD COLUMN dropping_at    timestamptz,
  ADD COLUMN tokens_from    timestamptz,
  ADD CHECK ((deleted_at IS NULL) = (drop_at IS NULL)),
  ADD CHECK (dropping_at IS NULL OR deleted_at IS NOT NULL);

-- How far the ids and versions of tenants went that were dropped. One that is made again
-- goes on after them, so that no id ever names two tasks.
CREATE TABLE retired_tenants (
  slug       text        PRIMARY KEY,
  end_pos    int         NOT NULL,
  version    bigint      NOT NULL,
  dropped_at timestamptz NOT NULL
);

-- +goose Down
DROP TABLE retired_tenants;
ALTER TABLE tenants DROP COLUMN quotas, DROP COLUMN suspended_at, DROP COLUMN suspend_reason, DROP COLUMN deleted_at,
  DROP COLUMN drop_at, DROP COLUMN dropping_at, DROP COLUMN tokens_from;
