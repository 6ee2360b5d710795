package hot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// In a type with priority first, tasks with a head start go before the turns while they come first
// in the order of the whole type. So a head start passes what was submitted within it, of all keys,
// as in a type without turns, and nothing that is older. Such tasks cost their key no turn.

// takeRaised takes tasks with a head start that go before the turns, and goes on past tasks of
// stages without capacity.
func (f *fairTake) takeRaised(ctx context.Context) (all []Candidate, err error) {
	if !f.l.t.PriorityFirst() {
		return nil, nil
	}
	for range mostDeals {
		n := f.l.n - f.open(all)
		some, err := f.takeSomeRaised(ctx, n)
		all = append(all, some...)
		if err != nil || len(some) < n || f.open(all) >= f.l.n {
			return all, err
		}
	}
	return all, nil
}

// takeSomeRaised takes up to n tasks that go before the turns.
func (f *fairTake) takeSomeRaised(ctx context.Context, n int) ([]Candidate, error) {
	t := f.l.t
	least := f.least
	if least.IsZero() {
		least = f.leastFrom(f.memory.firstDue)
	}
	f.memory.firstDue = time.Time{}
	rows, err := f.l.conn.Query(ctx, t.SQL(0, raisedSQL(t, f.sources)), t.Number(), f.l.now,
		stagesOf(f.sources), lowwater.Bound(least), n)
	if err != nil {
		return nil, err
	}
	var keys []string
	bySource := make([][]int, len(f.sources))
	var key string
	var source, count int
	var first *time.Time
	_, err = pgx.ForEachRow(rows, []any{&key, &source, &count, &first}, func() error {
		if count == 0 {
			if first != nil {
				f.memory.firstDue = *first
			}
			return nil
		}
		if len(keys) == 0 || keys[len(keys)-1] != key {
			keys = append(keys, key)
			for i := range bySource {
				bySource[i] = append(bySource[i], 0)
			}
		}
		bySource[source][len(keys)-1] = count
		return nil
	})
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	b := &pgx.Batch{}
	for i, source := range f.sources {
		source.queueTake(b, f, keys, bySource[i])
	}
	err = f.l.conn.Send(ctx, b)
	some := f.taken(f.last)
	slices.SortFunc(some, func(a, b Candidate) int { return LeasesInOrder(a.Lease, b.Lease) })
	for i := range some {
		some[i].raised = true
	}
	return some, err
}

// RaisedBefore reports whether a due task of a fair type goes before the turns of flow keys.
func RaisedBefore(
	ctx context.Context, db postgres.Querier, t *config.Type, id int64, now time.Time,
) (raised bool, err error) {
	if !t.PriorityFirst() {
		return false, nil
	}
	sources := liveSources(t)
	err = db.QueryRow(ctx, t.SQL(0, headSQL(t, sources)+`
SELECT EXISTS (SELECT FROM head WHERE id = $6 AND raised)`), t.Number(), now, stagesOf(sources),
		lowwater.Bound(time.Time{}), mostTurns, id).Scan(&raised)
	return raised, err
}

// headSQL reads the first $5 due tasks from $4 on. raised are the tasks that go before the turns:
// they are ahead by their priority, as are all tasks before them.
func headSQL(t *config.Type, sources []fairSource) string {
	selects := make([]string, len(sources))
	for i, s := range sources {
		selects[i] = fmt.Sprintf(`(SELECT %d AS source, key, order_time, id, since FROM %s
			AND order_time <= $2 AND order_time >= $4 ORDER BY order_time, id LIMIT $5)`, i,
			s.from(t, i, "$3"))
	}
	return `
WITH head AS MATERIALIZED (
  SELECT key, source, order_time, id, bool_and(since IS NOT NULL AND key IS NOT NULL)
    OVER (ORDER BY order_time, id) AS raised
  FROM (SELECT * FROM (` + strings.Join(selects, " UNION ALL ") + `) s
    ORDER BY order_time, id LIMIT $5) first)`
}

// raisedSQL counts, by key and source, the tasks that go before the turns. A row without any gives
// the first order_time.
func raisedSQL(t *config.Type, sources []fairSource) string {
	return headSQL(t, sources) + `
SELECT '' AS key, 0 AS source, 0 AS n, min(order_time) FROM head
UNION ALL
SELECT key, source, count(*), NULL FROM head WHERE raised GROUP BY key, source
ORDER BY key, source`
}
