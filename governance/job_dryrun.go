package governance

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/asyncflow/asyncflow/store"
)

// dryRunTypes calls count for each type of each tenant and returns the rows that a job would move.
func (s *shared) dryRunTypes(
	ctx context.Context, count func(store.Overview) (int, error),
) ([]store.Due, error) {
	var all []store.Due
	_, err := s.everyType(ctx, func(o store.Overview) (int, error) {
		n, err := count(o)
		all = append(all, store.Due{Tenant: o.Type.Tenant, Type: o.Type.Name, Rows: n})
		return n, err
	})
	return withoutEmpty(all), err
}

// dryRunTenants calls count for each tenant and returns the rows that a job would move.
func (s *shared) dryRunTenants(
	count func(tenant string) ([]store.Due, error),
) ([]store.Due, error) {
	var all []store.Due
	var errs []error
	for tenant := range s.store.Catalog.Tenants() {
		due, err := count(tenant)
		all = append(all, due...)
		errs = append(errs, err)
	}
	return withoutEmpty(all), errors.Join(errs...)
}

// withoutEmpty drops entries without rows, and sorts by tenant.
func withoutEmpty(all []store.Due) []store.Due {
	slices.SortStableFunc(all, func(a, b store.Due) int { return strings.Compare(a.Tenant, b.Tenant) })
	return slices.DeleteFunc(all, func(d store.Due) bool { return d.Rows == 0 })
}
