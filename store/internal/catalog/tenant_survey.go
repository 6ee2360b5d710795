package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// tenantsAtOnce is how many tenants one statement looks at, unless a test sets another number.
const tenantsAtOnce = 50

// QueryTenants runs a query for some tenants, many in one statement, and calls take with each row.
// query is the text for one tenant: it begins with SELECT i, and {schema} stands for the
// tenant's schema. The statement isn't prepared: the next one is for other tenants. QueryTenants
// leaves out tenants that this node doesn't know.
func (s *Core) QueryTenants(
	ctx context.Context, tenants []string, query string, args []any,
	take func(tenant string, row pgx.CollectableRow) error,
) error {
	known := slices.DeleteFunc(slices.Sorted(slices.Values(tenants)),
		func(tenant string) bool {
			return !s.Catalog.HasTenant(tenant) || s.Catalog.IsBehind(tenant)
		})
	if len(known) == 0 {
		return nil
	}
	conn, err := s.Base.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if len(known) > s.tenantsAtOnce { // it would keep what it has learnt of all these tables
		defer func() { _ = conn.Conn().Close(context.WithoutCancel(ctx)) }()
	}
	atOnce := s.tenantsAtOnce
	if s.distributed { // a statement goes to one worker
		atOnce = 1
	}
	for some := range slices.Chunk(known, atOnce) {
		if err := ofSome(ctx, conn, some, query, args, take); err != nil {
			return err
		}
	}
	return nil
}

// ofSome is QueryTenants in one statement.
func ofSome(
	ctx context.Context, q postgres.Querier, tenants []string, query string, args []any,
	take func(tenant string, row pgx.CollectableRow) error,
) error {
	selects := make([]string, len(tenants))
	for i, tenant := range tenants {
		selects[i] = strings.NewReplacer("SELECT i", fmt.Sprintf("SELECT %d", i), "{schema}",
			postgres.Quote(schema.Of(tenant))).Replace(query)
	}
	rows, _ := q.Query(ctx, strings.Join(selects, " UNION ALL "),
		append([]any{pgx.QueryExecModeExec}, args...)...)
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var i int
		if err := row.Scan(append([]any{&i},
			make([]any, len(row.FieldDescriptions())-1)...)...); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, take(tenants[i], row)
	})
	return err
}

// FirstTimes runs a query that returns a time for each of some tenants. It leaves out tenants
// without one.
func (s *Core) FirstTimes(
	ctx context.Context, tenants []string, query string, args ...any,
) (map[string]time.Time, error) {
	all := map[string]time.Time{}
	err := s.QueryTenants(ctx, tenants, query, args,
		func(tenant string, row pgx.CollectableRow) error {
			var at *time.Time
			err := row.Scan(nil, &at)
			if at != nil {
				all[tenant] = *at
			}
			return err
		})
	return all, err
}
