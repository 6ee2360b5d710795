package tasks

import (
	"context"
	"errors"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// listSQL lists the tasks in a window of candidates.
func (c criteria) listSQL() string {
	limit := 5
	if c.content != "" {
		limit++
	}
	if c.entries != nil {
		limit++
	}
	return listColumns + `
FROM ` + c.window() + ` c
JOIN {task} t ON t.type = $1 AND t.id = c.id` + stateJoins + `
WHERE ` + c.sql(limit+1) + `
ORDER BY t.id` + c.direction() + ` LIMIT $` + strconv.Itoa(limit)
}

// windowSQL returns how many candidates are in a window, how many bytes they take if these count,
// the number where the next window begins, and when the least and the greatest were created.
func (c criteria) windowSQL() string {
	bytes := `0`
	if c.content != "" {
		bytes = `coalesce(sum(bytes), 0)::bigint`
	}
	next := `w.least`
	if c.reverse {
		next = `w.greatest + 1`
	}
	return `SELECT w.n, w.bytes, coalesce(` + next + `, 0),
  (SELECT created_at FROM {task} t WHERE t.type = $1 AND t.id = w.least),
  (SELECT created_at FROM {task} t WHERE t.type = $1 AND t.id = w.greatest)
FROM (SELECT count(*) AS n, ` + bytes + ` AS bytes, min(id) AS least, max(id) AS greatest
  FROM ` + c.window() + ` c) w`
}

// latest bounds a window: the last $4 ids from $2 to before $3. earliest takes the first ones.
const (
	latest   = `id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4`
	earliest = `id >= $2 AND id < $3 ORDER BY id LIMIT $4`
)

// windowed returns a query for the candidates of a window, whatever their bytes.
func (c criteria) windowed() string {
	if c.reverse {
		return c.candidates(earliest)
	}
	return c.candidates(latest)
}

// direction returns the direction of ids in an ORDER BY.
func (c criteria) direction() string {
	if c.reverse {
		return ""
	}
	return ` DESC`
}

// window returns a query for the candidates of a window. Where contexts and outputs are searched,
// it ends with the candidate by which they take $5 bytes or more. The length of a long value is
// known without reading it.
func (c criteria) window() string {
	if c.content == "" {
		return c.windowed()
	}
	return `(SELECT id, bytes FROM (
  SELECT id, bytes, sum(bytes) OVER (ORDER BY id` + c.direction() + `) - bytes AS before
  FROM (SELECT c.id, octet_length(t.context) + coalesce((SELECT sum(octet_length(o.output))
      FROM {journal} o WHERE o.type = t.type AND o.id = t.id), 0) AS bytes
    FROM ` + c.windowed() + ` c JOIN {task} t ON t.type = $1 AND t.id = c.id) b) b
  WHERE before < $5)`
}

// windowArgs returns the parameters of window.
func (c criteria) windowArgs(t *config.Type, least, before int64, window int) []any {
	args := []any{t.Number(), least, before, window}
	if c.content != "" {
		args = append(args, c.bytes)
	}
	return c.bound(args...)
}

// contentSQL is a condition on the rows of stateJoins: the text stands in the task's context or in
// an output of its journal. OFFSET 0 keeps the planner from reading the whole journal into a hash.
const contentSQL = `
  AND (position($content IN t.context) > 0 OR EXISTS (SELECT FROM {journal} o
    WHERE o.type = t.type AND o.id = t.id AND position($content IN o.output) > 0 OFFSET 0))`

// holderOf returns the number of the task for which an idempotency key stands; 0: there is none.
func holderOf(
	ctx context.Context, db postgres.Querier, t *config.Type, key string,
) (id int64, err error) {
	err = db.QueryRow(ctx,
		t.SQL(0, `SELECT id FROM {keys} WHERE type = $1 AND key = $2`), t.Name, key).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return id, err
}
