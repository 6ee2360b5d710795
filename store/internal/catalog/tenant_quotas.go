package catalog

import (
	"github.com/asyncflow/asyncflow/store/internal/config"
)

import "github.com/asyncflow/asyncflow"

// newTenant returns what the node knows of a tenant.
func (s *Core) newTenant(stored config.StoredTenant) *config.Tenant {
	return &config.Tenant{StoredTenant: stored, Suspended: stored.State() != asyncflow.TenantActive,
		Quotas: s.QuotasOf(stored)}
}

// QuotasOf returns the quotas that apply to a tenant; in them, 0 is no limit.
func (s *Core) QuotasOf(t config.StoredTenant) asyncflow.Quotas {
	return t.Own.Or(s.Config.DefaultQuotas)
}
