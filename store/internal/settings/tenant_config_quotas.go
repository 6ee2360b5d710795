package settings

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// How the quotas of a tenant's configuration are kept exactly: a transaction first writes its
// change. Then it locks the tenant's row, so that concurrent changes come one after the other,
// and counts everything. A lowered quota removes nothing: a change that neither adds nor grows
// anything is not refused.

// lockTenant locks the tenant's row until the tenant's transaction ends. Lock no other row of
// the tenant after it.
func (s *base) lockTenant(ctx context.Context, tx pgx.Tx, tenant string) error {
	if err := s.core.Roles.AsBase(ctx, tx); err != nil {
		return err
	}
	const lock = `SELECT FROM asyncflow.tenants WHERE slug = $1 FOR UPDATE`
	if _, err := tx.Exec(ctx, lock, tenant); err != nil {
		return err
	}
	return s.core.Roles.AsTenant(ctx, tx, tenant)
}

// growth says what a change adds to a tenant's configuration.
type growth struct {
	one   asyncflow.QuotaName // the quota that counts the new thing; "": nothing is new
	bytes int
}

// checkConfig refuses a change that takes the tenant over a quota: CodeQuota. The change must
// be written already.
func (s *base) checkConfig(ctx context.Context, tx pgx.Tx, tenant string, g growth) error {
	t, ok := s.core.Catalog.Tenant(tenant)
	if !ok || g.one == "" && g.bytes <= 0 {
		return nil
	}
	if err := s.lockTenant(ctx, tx, tenant); err != nil {
		return err
	}
	used, err := configUse(ctx, tx, tenant)
	if err != nil {
		return err
	}
	for _, name := range []asyncflow.QuotaName{g.one, asyncflow.QuotaConfigurationBytes} {
		limit := t.Quotas.Get(name)
		if limit == 0 || used[name] <= limit {
			continue
		}
		before := used[name] - 1
		if name == asyncflow.QuotaConfigurationBytes {
			if g.bytes <= 0 {
				continue
			}
			before = used[name] - float64(g.bytes)
		}
		return asyncflow.QuotaExceeded(name, limit, before)
	}
	return nil
}

// configUse counts what a tenant has configured, without its targets and one endpoint of each. It
// reads no context or certificate, only their lengths.
func configUse(
	ctx context.Context, q postgres.Querier, tenant string,
) (map[asyncflow.QuotaName]float64, error) {
	schema := postgres.Quote(schema.Of(tenant))
	var types, endpoints, schedules, bytes int64
	err := q.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM `+schema+`.task_types
		 WHERE name <> $1 AND NOT starts_with(name, $2)),
		(SELECT count(*) - count(DISTINCT type) FILTER (WHERE starts_with(type, $2))
		 FROM `+schema+`.endpoints),
		(SELECT count(*) FROM `+schema+`.schedules),
		(SELECT coalesce(sum(octet_length(spec::text) + coalesce(octet_length(stage_mapping::text),
		  0)),
		    0)
		 FROM `+schema+`.task_types) +
		(SELECT coalesce(sum(octet_length(url) + coalesce(octet_length(outbound), 0)), 0)
		 FROM `+schema+`.endpoints) +
		(SELECT coalesce(sum(octet_length(sealed)), 0) FROM `+schema+`.endpoint_secrets) +
		(SELECT coalesce(sum(octet_length(spec::text) + octet_length(context::text)), 0)
		 FROM `+schema+`.schedules)`,
		asyncflow.AlertType, asyncflow.TargetPrefix).Scan(&types, &endpoints, &schedules, &bytes)
	return map[asyncflow.QuotaName]float64{
		asyncflow.QuotaTaskTypes:          float64(types),
		asyncflow.QuotaEndpoints:          float64(endpoints),
		asyncflow.QuotaSchedules:          float64(schedules),
		asyncflow.QuotaConfigurationBytes: float64(bytes),
	}, err
}

// endpointBytes returns what an endpoint adds to configuration_bytes.
func endpointBytes(e asyncflow.Endpoint) int {
	n := len(e.URL) + len(e.Outbound)
	for _, s := range e.Secrets {
		n += len(s.Sealed)
	}
	return n
}

// docBytes returns the length of some JSON documents; nil counts as none.
func docBytes(docs ...any) (n int) {
	for _, doc := range docs {
		if raw, err := json.Marshal(doc); doc != nil && err == nil {
			n += len(raw)
		}
	}
	return n
}
