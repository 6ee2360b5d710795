package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Overview tells the background jobs what a task type needs: the zero time where it needs
// nothing.
type Overview struct {
	Type          *config.Type
	Lease         time.Time // when the first lease runs out
	Wait          time.Time // when the first waiting task is due
	Ready         time.Time // the order_time at the head of ready
	BlockedStages []string  // stages in which tasks wait for an endpoint, or for capacity at one
	// BlockedKeys reports whether tasks are blocked by their flow key.
	BlockedKeys bool
}

// Any reports whether there is anything in the type that a job may need to look after, now or
// later.
func (o Overview) Any() bool {
	return !o.Lease.IsZero() || !o.Wait.IsZero() || !o.Ready.IsZero() || len(o.BlockedStages) > 0 ||
		o.BlockedKeys
}

// Overviews looks at some task types of a tenant, by name. It leaves out types that are gone. Types
// with the same tables take one statement.
func (s *Upkeep) Overviews(ctx context.Context, tenant string, names []string) ([]Overview, error) {
	types := s.core.Catalog.TypesOf(tenant)
	together := map[string][]*config.Type{}
	for _, name := range names {
		if t := types[name]; t != nil {
			together[config.Readies(t)] = append(together[config.Readies(t)], t)
		}
	}
	var all []Overview
	for _, some := range together {
		part, err := s.overviews(ctx, tenant, some)
		if err != nil {
			return nil, postgres.Wrap(err, "Overviews(%q)", tenant)
		}
		all = append(all, part...)
	}
	return all, nil
}

// overviewsSQL looks at the types with numbers in $1. It takes a few rows of each by index, except
// that it reads all leases.
var overviewsSQL = `
SELECT n, (SELECT min(until) FROM {lease} WHERE type = n),
  (SELECT until FROM {wait} WHERE type = n AND until < 'infinity' ORDER BY until LIMIT 1),
  (SELECT order_time FROM {readies} r WHERE type = n ORDER BY order_time, id LIMIT 1),
  ARRAY(` + hot.BlockedStagesSQL("n") + `),
  EXISTS (SELECT FROM {wait} WHERE type = n AND key IS NOT NULL AND reason = 'flow_key')
FROM unnest($1::int[]) n`

// overviews looks at types of a tenant that share the same tables.
func (s *Upkeep) overviews(
	ctx context.Context, tenant string, types []*config.Type,
) ([]Overview, error) {
	byNumber := make(map[int32]*config.Type, len(types))
	numbers := make([]int32, len(types))
	for i, t := range types {
		numbers[i] = t.Number()
		byNumber[t.Number()] = t
	}
	rows, _ := s.core.DB(tenant).Query(ctx, types[0].SQL(types[0].Begin, overviewsSQL), numbers)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Overview, err error) {
		var number int32
		var lease, wait, ready *time.Time
		err = row.Scan(&number, &lease, &wait, &ready, &o.BlockedStages, &o.BlockedKeys)
		o.Type = byNumber[number]
		o.Lease = postgres.OrZero(lease)
		o.Wait = postgres.OrZero(wait)
		o.Ready = postgres.OrZero(ready)
		return o, err
	})
}
