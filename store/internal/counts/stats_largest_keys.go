package counts

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// KeyTasks counts due tasks of a flow key; "" are the tasks without one.
type KeyTasks struct {
	FlowKey string
	Tasks   int64
}

const (
	largestKeys = 10
	// keysAmong is how many of the tasks that have been due longest count for the largest keys.
	keysAmong = 10_000
)

// largestKeysOf returns the flow keys of a fair type with the most due tasks in line, most first:
// among the first keysAmong tasks in order of each live ready table.
func (s *Counts) largestKeysOf(ctx context.Context, t *config.Type) ([]KeyTasks, error) {
	if !t.Fair() {
		return nil, nil
	}
	var selects []string
	for _, p := range t.Live() {
		selects = append(selects, `(SELECT key, order_time FROM `+t.SetAt(p).Tables.Ready(p)+`
			WHERE type = $1 AND order_time <= $2 ORDER BY order_time, id LIMIT $3)`)
	}
	rows, _ := s.core.DB(t.Tenant).Query(ctx, `SELECT coalesce(key, ''), count(*) FROM (
		SELECT key FROM (`+strings.Join(selects, " UNION ALL ")+`) d ORDER BY order_time LIMIT $3) d
		GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT $4`, t.Number(), s.core.Clock.Now(), keysAmong,
		largestKeys)
	return pgx.CollectRows(rows, pgx.RowToStructByPos[KeyTasks])
}
