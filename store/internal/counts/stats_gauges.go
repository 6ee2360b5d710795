package counts

import (
	"context"
	"maps"
	"slices"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Gauges counts the live tasks of all of a tenant's types, as Stats does, and leaves out how long
// they took.
func Gauges(ctx context.Context, s *Counts, tenant string) (all []Stats, err error) {
	ctx = postgres.Patient(ctx)
	types := slices.Collect(maps.Values(s.core.Catalog.TypesOf(tenant)))
	for _, some := range ByTables(types) {
		found, err := s.countTypes(ctx, tenant, some, false)
		if err != nil {
			return nil, postgres.Wrap(err, "Gauges(%q)", tenant)
		}
		if err = s.addBacklogs(ctx, tenant, found); err != nil {
			return nil, postgres.Wrap(err, "Gauges(%q)", tenant)
		}
		for _, c := range found {
			all = append(all, c.Stats)
		}
	}
	return all, nil
}
