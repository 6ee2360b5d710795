package governance

import (
	"context"
	"errors"
	"iter"

	"github.com/asyncflow/asyncflow/store"
)

// vacuum vacuums the small tables of the table sets of which this node has moved many rows.
func (g *Governor) vacuum(ctx context.Context) (int, error) { return g.store.Vacuum(ctx) }

// ByHand makes a governor for a process that only runs jobs by hand. Such a process has moved no
// rows itself, so its vacuum takes those of every set.
func (g *Governor) ByHand() *Governor {
	for i := range g.jobs {
		if g.jobs[i].Name == "vacuum" {
			g.jobs[i].Run = g.vacuumAll
		}
	}
	return g
}

func (g *Governor) vacuumAll(ctx context.Context) (sum int, err error) {
	var errs []error
	for set := range g.everySet() {
		errs = append(errs, g.store.VacuumSet(ctx, set))
		sum++
	}
	return sum, errors.Join(errs...)
}

func (g *Governor) dryRunVacuum(ctx context.Context) ([]store.Due, error) {
	var all []store.Due
	var errs []error
	for set := range g.everySet() {
		n, err := g.store.DryRunVacuum(ctx, set)
		all = append(all, store.Due{Tenant: set.Tenant, Type: set.Name, Rows: n})
		errs = append(errs, err)
	}
	return withoutEmpty(all), errors.Join(errs...)
}

// everySet returns the table sets of all tenants.
func (g *Governor) everySet() iter.Seq[*store.TableSet] {
	return func(yield func(*store.TableSet) bool) {
		for tenant := range g.store.Catalog.Tenants() {
			for _, set := range g.store.Catalog.SetsOf(tenant) {
				if !yield(set) {
					return
				}
			}
		}
	}
}
