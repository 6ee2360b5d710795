package governance

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

func (g *Governor) lookRescue(ctx context.Context) ([]store.Due, error) {
	return g.lookTypes(ctx, func(o store.Overview) (int, error) { return g.store.LookRescue(ctx, o.Type) })
}

func (g *Governor) lookPromote(ctx context.Context) ([]store.Due, error) {
	return g.lookTypes(ctx, func(o store.Overview) (int, error) {
		return g.store.LookPromote(ctx, o.Type, served(o.Type, o.Held, g.store.Clock.Now()))
	})
}

func (g *Governor) lookVacuum(ctx context.Context) ([]store.Due, error) {
	return g.lookTypes(ctx, func(o store.Overview) (int, error) { return g.store.LookVacuum(ctx, o.Type) })
}

func (g *Governor) lookOperations(ctx context.Context) ([]store.Due, error) {
	before := g.store.Clock.Now().Add(operationAhead)
	return g.lookTenants(func(tenant string) ([]store.Due, error) { return g.store.LookOperations(ctx, tenant, before) })
}

func (g *Governor) lookKeys(ctx context.Context) ([]store.Due, error) {
	return g.lookTenants(func(tenant string) ([]store.Due, error) { return g.store.LookKeys(ctx, tenant) })
}

func (g *Governor) lookSchedules(ctx context.Context) ([]store.Due, error) {
	return g.lookTenants(func(tenant string) ([]store.Due, error) { return g.store.LookSchedules(ctx, tenant) })
}

func (g *Governor) lookFold(ctx context.Context) ([]store.Due, error) {
	return g.lookTenants(func(tenant string) ([]store.Due, error) { return g.store.LookFold(ctx, tenant) })
}

func (g *Governor) lookForget(ctx context.Context) ([]store.Due, error) {
	nodes, err := g.store.LookForgetNodes(ctx)
	audit, err1 := g.lookForgetAudit(ctx, "")
	due, err2 := g.lookTenants(func(tenant string) ([]store.Due, error) {
		due, err := g.store.LookForgetOperations(ctx, tenant)
		n, err2 := g.store.LookForgetEpisodes(ctx, tenant)
		minutes, err3 := g.store.LookForgetMinutes(ctx, tenant)
		entries, err4 := g.lookForgetAudit(ctx, tenant)
		secrets, err5 := g.store.LookForgetSecrets(ctx, tenant)
		return append(due, store.Due{Tenant: tenant, Type: asyncflow.AlertType, Rows: n}, store.Due{Tenant: tenant, Rows: minutes + entries + secrets}),
			errors.Join(err, err2, err3, err4, err5)
	})
	return without0(append([]store.Due{{Rows: nodes + audit}}, due...)), errors.Join(err, err1, err2)
}

// lookTypes looks at each type of each tenant.
func (g *Governor) lookTypes(ctx context.Context, look func(store.Overview) (int, error)) ([]store.Due, error) {
	var all []store.Due
	_, err := g.eachType(ctx, 0, func(o store.Overview) (int, error) {
		n, err := look(o)
		all = append(all, store.Due{Tenant: o.Type.Tenant, Type: o.Type.Name, Rows: n})
		return n, err
	})
	return without0(all), err
}

// lookTenants looks at each tenant.
func (g *Governor) lookTenants(look func(tenant string) ([]store.Due, error)) ([]store.Due, error) {
	var all []store.Due
	var errs []error
	for tenant := range g.store.Catalog.Tenants() {
		due, err := look(tenant)
		all, errs = append(all, due...), append(errs, err)
	}
	return without0(all), errors.Join(errs...)
}

// without0 leaves out what is nothing, and sorts by tenant.
func without0(all []store.Due) []store.Due {
	slices.SortStableFunc(all, func(a, b store.Due) int { return strings.Compare(a.Tenant, b.Tenant) })
	return slices.DeleteFunc(all, func(d store.Due) bool { return d.Rows == 0 })
}

// vacuum vacuums what this node has made work for.
func (g *Governor) vacuum(ctx context.Context) (int, error) { return g.store.Vacuum(ctx) }

// ByHand is for a process that does nothing but what it is told: its vacuum takes the
// tables of every type, as it has moved no rows itself.
func (g *Governor) ByHand() *Governor {
	for i := range g.jobs {
		if g.jobs[i].Name == "vacuum" {
			g.jobs[i].Run = g.vacuumAll
		}
	}
	return g
}

func (g *Governor) vacuumAll(ctx context.Context) (int, error) {
	return g.eachType(ctx, 0, func(o store.Overview) (int, error) { return 1, g.store.VacuumType(ctx, o.Type) })
}
