package client

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/asyncflow/asyncflow"
)

// NoLimit, as a tenant's quota, overrides the operator's default.
const NoLimit = asyncflow.NoLimit

// CreateTenant creates a tenant; quotas that are not 0 override the operator's defaults. All calls
// about tenants need the scope admin.
func (c *Client) CreateTenant(ctx context.Context, slug string, quotas Quotas) (Tenant, error) {
	return callWith[Tenant](ctx, c, NewTenant{Slug: slug, Quotas: quotas},
		c.api.CreateTenantWithBody)
}

// Tenants returns a page of at most limit tenants by name, starting at a cursor. limit 0: the
// server's default; cursor "": the first page.
func (c *Client) Tenants(ctx context.Context, limit int, cursor string) (TenantList, error) {
	params := map[string]string{"cursor": cursor}
	if limit != 0 {
		params["limit"] = strconv.Itoa(limit)
	}
	return call[TenantList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTenants(ctx, nil, query(params))
	})
}

// TroubledTenants returns the active tenants with alerts, due tasks or tasks that failed in the
// last hour, each with its health: the worst first, and at most limit. limit 0: the server's
// default. Nodes note it once a minute. Unread is of how many they could not.
func (c *Client) TroubledTenants(ctx context.Context, limit int) (TenantList, error) {
	params := map[string]string{"order": "trouble"}
	if limit != 0 {
		params["limit"] = strconv.Itoa(limit)
	}
	return call[TenantList](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.ListTenants(ctx, nil, query(params))
	})
}

// Tenant returns a tenant, with the use of each quota.
func (c *Client) Tenant(ctx context.Context, slug string) (Tenant, error) {
	return callOn[Tenant](ctx, c, "slug", slug, c.api.GetTenant)
}

// PatchTenant changes a tenant's quotas, suspends or resumes it, and returns it. Nil fields keep
// their values.
func (c *Client) PatchTenant(ctx context.Context, slug string, patch TenantPatch) (Tenant, error) {
	return callOnWith[Tenant](ctx, c, "slug", slug, patch, c.api.PatchTenantWithBody)
}

// SuspendTenant suspends a tenant: its calls are refused, and none of its tasks are leased.
func (c *Client) SuspendTenant(ctx context.Context, slug, reason string) (Tenant, error) {
	suspended := true
	return c.PatchTenant(ctx, slug, TenantPatch{Suspended: &suspended, Reason: reason})
}

// ResumeTenant resumes a suspended tenant.
func (c *Client) ResumeTenant(ctx context.Context, slug string) (Tenant, error) {
	return c.PatchTenant(ctx, slug, TenantPatch{Suspended: new(bool)})
}

// DeleteTenant suspends a tenant at once, and drops it after grace. 0: as soon as possible; less
// than 0: after the server's default, 7 days.
func (c *Client) DeleteTenant(
	ctx context.Context, slug string, grace time.Duration,
) (Tenant, error) {
	if err := checkPart("slug", slug); err != nil {
		return Tenant{}, err
	}
	params := map[string]string{}
	switch {
	case grace == 0:
		params["now"] = "true"
	case grace > 0:
		params["grace"] = asyncflow.NewDuration(grace).String()
	}
	return call[Tenant](ctx, c, 0, func(ctx context.Context) (*http.Response, error) {
		return c.api.DeleteTenant(ctx, slug, nil, query(params))
	})
}

// RestoreTenant undoes a deletion during its grace.
func (c *Client) RestoreTenant(ctx context.Context, slug string) (Tenant, error) {
	return callOn[Tenant](ctx, c, "slug", slug, c.api.RestoreTenant)
}

// Quota returns the quotas of the token's own tenant, and their use.
func (c *Client) Quota(ctx context.Context) ([]QuotaUsage, error) {
	list, err := callBare[QuotaList](ctx, c, c.api.GetQuota)
	return list.Data, err
}
