package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// tenantsAtOnce is how many tenants one statement looks at.
const tenantsAtOnce = 50

// ofTenants runs a query for all tenants, many in one statement, and calls take with each row.
// query is the text for one tenant: it begins with SELECT i, and {schema} stands for the
// tenant's schema. The statement changes only when tenants come and go, so it is prepared.
func (s *Store) ofTenants(
	ctx context.Context,
	query string,
	args []any,
	take func(tenant string, row pgx.CollectableRow) error,
) error {
	for tenants := range slices.Chunk(slices.Sorted(maps.Keys(s.Catalog.Tenants())), tenantsAtOnce) {
		selects := make([]string, len(tenants))
		for i, tenant := range tenants {
			selects[i] = strings.NewReplacer("SELECT i", fmt.Sprintf("SELECT %d", i), "{schema}",
				quote(schemaOf(tenant))).Replace(query)
		}
		rows, err := s.base.Query(ctx, strings.Join(selects, " UNION ALL "), args...)
		if err != nil {
			return err
		}
		_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
			var i int
			if err := row.Scan(append([]any{&i},
				make([]any, len(row.FieldDescriptions())-1)...)...); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, take(tenants[i], row)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TenantsToExpire returns the tenants that have keys whose windows are over.
func (s *Store) TenantsToExpire(ctx context.Context) (tenants []string, err error) {
	err = s.ofTenants(ctx,
		`SELECT i WHERE EXISTS (SELECT FROM {schema}.idempotency_keys WHERE expires_at <= $1)`,
		[]any{s.Clock.Now()},
		func(tenant string, _ pgx.CollectableRow) error {
			tenants = append(tenants, tenant)
			return nil
		})
	return tenants, wrap(err, "TenantsToExpire")
}

// Unfolded identifies the tallies of a tenant. If it is the same as after a fold, there are no
// new tallies to add up.
type Unfolded struct {
	Rows int64     // of minutes that are over
	Last time.Time // the time of the last of these rows; zero: there is none
	Hour time.Time // the present one; in the next one more rows may be added up
}

// Unfolded looks at the tallies of all tenants.
func (s *Store) Unfolded(ctx context.Context) (map[string]Unfolded, error) {
	now := s.Clock.Now()
	all := map[string]Unfolded{}
	err := s.ofTenants(ctx, `SELECT i, count(*), max(at) FROM {schema}.tallies WHERE at < $1`,
		[]any{now.Add(-rateWindow).Truncate(time.Minute)},
		func(tenant string, row pgx.CollectableRow) error {
			u := Unfolded{Hour: now.Truncate(time.Hour)}
			var last *time.Time
			err := row.Scan(nil, &u.Rows, &last)
			u.Last = orZero(last)
			all[tenant] = u
			return err
		})
	return all, wrap(err, "Unfolded")
}
