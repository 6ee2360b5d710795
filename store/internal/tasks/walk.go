package tasks

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// walk goes through the tasks that a filter may find, newest first, in windows. Each window is
// of one range of a roll.
type walk struct {
	t             *catalog.Type
	family        trees.Family
	since         time.Time // of the filter
	oldest        int64     // the least number of all
	least, before int64     // the next window has the last candidates before before, from least on
}

// walkOf returns a walk through the tasks that a filter may find.
func (s *Tasks) walkOf(ctx context.Context, t *catalog.Type, f Filter) (*walk, error) {
	w := &walk{t: t, since: f.Since, before: asyncflow.NewTaskID(t.Name, t.End+1, 0).Number,
		oldest: asyncflow.NewTaskID(t.Name, t.First, 0).Number}
	if f.Before > 0 {
		w.before = min(w.before, f.Before)
	}
	var err error
	if w.family, err = trees.FamilyOf(ctx, s.trees, t, f.Parent); err != nil || f.Key == "" {
		return w, err
	}
	id, err := s.holderOf(ctx, t, f.Key)
	if id == 0 {
		w.before = 0 // there is none
	}
	w.oldest = max(w.oldest, id)
	w.before = min(w.before, id+1)
	return w, err
}

// next goes to the next window; false: there is none.
func (w *walk) next() bool {
	for w.before > w.oldest {
		if w.before, w.least = w.family.Before(w.before); w.before <= w.oldest {
			return false
		}
		if w.t.Has(asyncflow.TaskID{Number: w.before - 1}.Position()) {
			w.least = max(w.least, rangeOf(w.t, w.before), w.oldest)
			return true
		}
		w.before = rollOf(w.t, w.before) // a gap between two table sets
	}
	return false
}

// pass goes on after a window.
func (w *walk) pass(v view) {
	if v.looked > 0 && v.created.Before(w.since.Add(-sinceSlack)) { // later ones are older still
		first := rangeOf(w.t, w.before)
		if first == rollOf(w.t, w.before) {
			w.before = 0
			return
		}
		v.last = first
	}
	w.before = v.last
}

// rollOf returns the least number of the roll of a window before a number.
func rollOf(t *catalog.Type, before int64) int64 {
	return asyncflow.NewTaskID(t.Name, asyncflow.TaskID{Number: before - 1}.Position(), 0).Number
}

// rangeOf returns the least number of the range of a window before a number. Each roll has two
// ranges: tasks that were submitted by SQL have greater numbers than all other tasks.
func rangeOf(t *catalog.Type, before int64) int64 {
	bySQL := rollOf(t, before) + asyncflow.FirstBySQL
	if before > bySQL {
		return bySQL
	}
	return rollOf(t, before)
}

// listSQL lists the tasks in a window of candidates.
func (c criteria) listSQL() string {
	limit := 5
	if c.content != "" {
		limit = 6
	}
	return listColumns + `
FROM ` + c.window() + ` c
JOIN {task} t ON t.type = $1 AND t.id = c.id` + stateJoins + `
WHERE ` + c.sql(limit+1) + `
ORDER BY t.id DESC LIMIT $` + strconv.Itoa(limit)
}

// windowSQL returns how many candidates a window has, how many bytes they have if these count, the
// least one's number, and when the least and the greatest were created.
func (c criteria) windowSQL() string {
	bytes := `0`
	if c.content != "" {
		bytes = `coalesce(sum(bytes), 0)::bigint`
	}
	return `SELECT w.n, w.bytes, coalesce(w.least, 0),
  (SELECT created_at FROM {task} t WHERE t.type = $1 AND t.id = w.least),
  (SELECT created_at FROM {task} t WHERE t.type = $1 AND t.id = w.greatest)
FROM (SELECT count(*) AS n, ` + bytes + ` AS bytes, min(id) AS least, max(id) AS greatest
  FROM ` + c.window() + ` c) w`
}

// latest bounds a window: the last $4 ids from $2 to before $3.
const latest = `id >= $2 AND id < $3 ORDER BY id DESC LIMIT $4`

// window returns a query for the candidates of a window. Where contexts and outputs are searched,
// it ends with the candidate by which they have $5 bytes or more. The length of a long value is
// known without reading it.
func (c criteria) window() string {
	if c.content == "" {
		return c.candidates(latest)
	}
	return `(SELECT id, bytes FROM (
  SELECT id, bytes, sum(bytes) OVER (ORDER BY id DESC) - bytes AS before
  FROM (SELECT c.id, octet_length(t.context) + coalesce((SELECT sum(octet_length(o.output))
      FROM {journal} o WHERE o.type = t.type AND o.id = t.id), 0) AS bytes
    FROM ` + c.candidates(latest) + ` c JOIN {task} t ON t.type = $1 AND t.id = c.id) b) b
  WHERE before < $5)`
}

// windowArgs returns the parameters of window.
func (c criteria) windowArgs(t *catalog.Type, least, before int64, window int) []any {
	args := []any{t.Number(), least, before, window}
	if c.content != "" {
		args = append(args, c.bytes)
	}
	return args
}

// contentSQL is a condition on the rows of stateJoins: the text stands in the task's context or in
// an output of its journal.
const contentSQL = `
  AND (position($content IN t.context) > 0 OR EXISTS (SELECT FROM {journal} o
    WHERE o.type = t.type AND o.id = t.id AND position($content IN o.output) > 0))`

// holderOf returns the number of the task for which an idempotency key stands; 0: there is none.
func (s *Tasks) holderOf(ctx context.Context, t *catalog.Type, key string) (id int64, err error) {
	err = s.core.DB(t.Tenant).QueryRow(ctx,
		t.SQL(0, `SELECT id FROM {keys} WHERE type = $1 AND key = $2`), t.Name, key).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return id, err
}

// findings are the tasks that a search found in one window.
type findings struct {
	ids  []int64 // ascending, of one roll
	seen int     // candidates
	last int64   // number after which the search goes on
	over bool    // there are no candidates after it
}

// search looks through the next tasks after a number, at most window of them, for tasks that
// meet the criteria. All are of one roll. So the statement is short, however long the history
// and however few tasks meet the criteria.
func search(
	ctx context.Context, tx pgx.Tx, t *catalog.Type, c criteria, after int64, window int,
) (f findings, err error) {
	position, ok := t.NextRoll(asyncflow.TaskID{Number: after}.Position())
	if !ok {
		return findings{last: after, over: true}, nil
	}
	after = max(after, asyncflow.NewTaskID(t.Name, position, 0).Number)
	end := asyncflow.NewTaskID(t.Name, position+1, 0).Number
	if err := c.learn(ctx, tx, t); err != nil {
		return f, err
	}
	rows, _ := tx.Query(ctx, t.SQL(position, `
SELECT t.id, coalesce(`+c.sql(5)+`, false)
FROM `+c.candidates(`id > $2 AND id < $3 ORDER BY id LIMIT $4`)+` c
JOIN {task} t ON t.type = $1 AND t.id = c.id`+stateJoins+`
ORDER BY t.id`), append([]any{t.Number(), after, end, window}, c.args(t)...)...)
	var id int64
	var meets bool
	_, err = pgx.ForEachRow(rows, []any{&id, &meets}, func() error {
		f.seen++
		f.last = id
		if meets {
			f.ids = append(f.ids, id)
		}
		return nil
	})
	if f.seen < window { // the roll has no more
		f.last = end
		f.over = position == t.End
	}
	return f, err
}

// searching runs do in a transaction with the settings of a search.
func (s *Tasks) searching(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	ctx = postgres.Patient(ctx)
	return pgx.BeginFunc(ctx, s.core.DB(tenant), func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		catalog.QueueSettings(b, catalog.SearchSettings)
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		return do(tx)
	})
}
