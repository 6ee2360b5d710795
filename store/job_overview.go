package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Overview tells the background jobs what a task type needs: the zero time where it needs
// nothing.
type Overview struct {
	Type          *Type
	Lease         time.Time // when the first lease runs out
	Wait          time.Time // when the first waiting task is due
	Ready         time.Time // the order_time at the head of ready
	BlockedStages []string  // stages in which tasks wait for an endpoint, or for capacity at one
	// BlockedKeys reports whether tasks are blocked by their flow key.
	BlockedKeys bool
}

// Any reports whether the type has anything that a job may have to look after, now or later.
func (o Overview) Any() bool {
	return !o.Lease.IsZero() || !o.Wait.IsZero() || !o.Ready.IsZero() || len(o.BlockedStages) > 0 ||
		o.BlockedKeys
}

// overviewTypes is how many types one statement looks at.
const overviewTypes = 50

// Overviews looks at some task types of a tenant, by name. It leaves out types that are gone.
func (s *Store) Overviews(ctx context.Context, tenant string, names []string) ([]Overview, error) {
	types := s.Catalog.TypesOf(tenant)
	known := slices.DeleteFunc(slices.Sorted(slices.Values(names)),
		func(name string) bool { return types[name] == nil })
	var all []Overview
	for names := range slices.Chunk(known, overviewTypes) {
		part, err := s.overviews(ctx, tenant, types, names)
		if err != nil {
			return nil, wrap(err, "Overviews(%q)", tenant)
		}
		all = append(all, part...)
	}
	return all, nil
}

func (s *Store) overviews(
	ctx context.Context,
	tenant string,
	types map[string]*Type,
	names []string,
) ([]Overview, error) {
	selects := make([]string, len(names))
	for i, name := range names {
		t := types[name]
		selects[i] = fmt.Sprintf(t.tables.at(t.Begin, `SELECT %d,
			(SELECT min(until) FROM {lease}),
			(SELECT until FROM {wait} WHERE until < 'infinity' ORDER BY until LIMIT 1),
			(SELECT order_time FROM {readies} r ORDER BY order_time, id LIMIT 1),
			ARRAY(`+blockedStagesSQL+`),
			EXISTS (SELECT FROM {wait} WHERE key IS NOT NULL AND reason = 'flow_key')`), i)
	}
	rows, err := s.of(tenant).Query(ctx, strings.Join(selects, " UNION ALL "), pgx.QueryExecModeExec)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o Overview, err error) {
		var i int
		var lease, wait, ready *time.Time
		err = row.Scan(&i, &lease, &wait, &ready, &o.BlockedStages, &o.BlockedKeys)
		o.Type, o.Lease, o.Wait, o.Ready = types[names[i]], orZero(lease), orZero(wait), orZero(ready)
		return o, err
	})
}

// JobBatch is the most rows that one transaction of a background job changes.
const JobBatch = 1000
