package governance

import (
	"context"
	"errors"
	"iter"

	"github.com/asyncflow/asyncflow/store"
)

// vacuumJob vacuums the small tables of table sets in which this node moved many rows.
type vacuumJob struct {
	*shared
	every bool // it vacuums the tables of every set: this process moves no rows itself
}

func (j *vacuumJob) run(ctx context.Context) (sum int, err error) {
	if !j.every {
		return j.store.Vacuum(ctx)
	}
	var errs []error
	for set := range j.everySet() {
		errs = append(errs, j.store.VacuumSet(ctx, set))
		sum++
	}
	return sum, errors.Join(errs...)
}

func (j *vacuumJob) dryRun(ctx context.Context) ([]store.Due, error) {
	var all []store.Due
	var errs []error
	for set := range j.everySet() {
		n, err := j.store.DryRunVacuum(ctx, set)
		all = append(all, store.Due{Tenant: set.Tenant, Type: set.Name, Rows: n})
		errs = append(errs, err)
	}
	return withoutEmpty(all), errors.Join(errs...)
}

// everySet returns the table sets of all tenants.
func (j *vacuumJob) everySet() iter.Seq[*store.TableSet] {
	return func(yield func(*store.TableSet) bool) {
		for tenant := range j.store.Catalog.Tenants() {
			for _, set := range j.store.Catalog.SetsOf(tenant) {
				if !yield(set) {
					return
				}
			}
		}
	}
}
