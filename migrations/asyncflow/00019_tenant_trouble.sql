-- +goose Up

-- What is wrong in tenants, so that the operator's list of tenants in trouble reads one table,
-- however many tenants there are. The job history writes a tenant's row when it has recorded the
-- tenant. A tenant that was never in trouble has no row. due is the number of due tasks as it was
-- sampled, and counts for three minutes. failed_at has the minutes of the last hour with tasks that
-- failed for good, and failed how many in each. unread: the tenant's tables could not be read.
CREATE TABLE tenant_trouble (
  tenant     text          PRIMARY KEY REFERENCES tenants ON DELETE CASCADE,
  alerts     int           NOT NULL DEFAULT 0,
  due        bigint        NOT NULL DEFAULT 0,
  oldest_due timestamptz,
  sampled_at timestamptz,
  failed_at  timestamptz[] NOT NULL DEFAULT '{}',
  failed     bigint[]      NOT NULL DEFAULT '{}',
  unread     boolean       NOT NULL DEFAULT false,
  CHECK (cardinality(failed_at) = cardinality(failed) AND cardinality(failed) <= 61)
) WITH (fillfactor = 70);
