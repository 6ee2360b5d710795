package governance

import (
	"context"
	"errors"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// forget deletes the rows of nodes that are gone, of operations and episodes of alerts that ended
// long ago, old minutes of endpoints, expired signing secrets, windows of claimers that are over, and entries of the audit that are
// older than its retention. It visits the tenants that have new rows, or some that have become old.
func (g *Governor) forget(ctx context.Context) (int, error) {
	g.attention.tidy(g.store.Catalog.Tenants())
	sum, err := g.store.ForgetNodes(ctx)
	audit, err2 := g.forgetAudit(ctx, "")
	sum += audit
	errs := []error{err, err2}
	records, err := g.records.read(ctx, g.store)
	if err != nil {
		return sum, errors.Join(append(errs, err)...)
	}
	versions, now := g.store.Catalog.Versions(), g.store.Clock.Now()
	for tenant, state := range g.forgotten.restless(versions, records, now) {
		n, err := g.forgetTenant(ctx, tenant, state)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// forgetTenant deletes the old rows of a tenant. The tenant rests until others have become old.
func (g *Governor) forgetTenant(ctx context.Context, tenant string, s state) (int, error) {
	first, err := g.store.FirstForget(ctx, tenant, g.audit)
	if err != nil {
		return 0, err
	}
	if first.IsZero() || first.After(g.store.Clock.Now()) {
		g.forgotten.rest(tenant, s, first)
		return 0, nil
	}
	sum, errs := 0, []error{}
	for _, forget := range []func(context.Context, string) (int, error){
		g.store.ForgetOperations, g.store.ForgetEpisodes, g.store.ForgetMinutes,
		g.store.ForgetSecrets, g.forgetClaims, g.forgetAudit,
	} {
		n, err := forget(ctx, tenant)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

func (g *Governor) forgetClaims(ctx context.Context, tenant string) (int, error) {
	return untilDone(func() (int, error) { return g.store.ForgetClaims(ctx, tenant) })
}

// forgetAudit deletes the entries older than the retention from a tenant's audit, or from the
// operator's ("").
func (g *Governor) forgetAudit(ctx context.Context, tenant string) (int, error) {
	if g.audit == 0 {
		return 0, nil
	}
	return untilDone(func() (int, error) { return g.store.ForgetAudit(ctx, tenant, g.audit) })
}

func (g *Governor) dryRunForget(ctx context.Context) ([]store.Due, error) {
	nodes, err := g.store.DryRunForgetNodes(ctx)
	audit, err1 := g.dryRunForgetAudit(ctx, "")
	due, err2 := g.dryRunTenants(func(tenant string) ([]store.Due, error) {
		due, err := g.store.DryRunForgetOperations(ctx, tenant)
		episodes, err2 := g.store.DryRunForgetEpisodes(ctx, tenant)
		minutes, err3 := g.store.DryRunForgetMinutes(ctx, tenant)
		entries, err4 := g.dryRunForgetAudit(ctx, tenant)
		secrets, err5 := g.store.DryRunForgetSecrets(ctx, tenant)
		windows, err6 := g.store.DryRunForgetClaims(ctx, tenant)
		due = append(due,
			store.Due{Tenant: tenant, Type: asyncflow.AlertType, Rows: episodes},
			store.Due{Tenant: tenant, Rows: minutes + entries + secrets + windows})
		return due, errors.Join(err, err2, err3, err4, err5, err6)
	})
	all := append([]store.Due{{Rows: nodes + audit}}, due...)
	return withoutEmpty(all), errors.Join(err, err1, err2)
}

func (g *Governor) dryRunForgetAudit(ctx context.Context, tenant string) (int, error) {
	if g.audit == 0 {
		return 0, nil
	}
	return g.store.DryRunForgetAudit(ctx, tenant, g.audit)
}
