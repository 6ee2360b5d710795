package upkeep

import (
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// taskRef names a task by the number of its type.
type taskRef struct {
	number int32
	id     int64
}

// window is what a step of a trimming looks at.
type window struct {
	ended []taskRef // old enough, in order
	last  taskRef   // up to which the step comes
	ends  bool      // no task comes after it
}

// endedSQL reads which tasks $5 of a roll from ($1, $2) on had ended by $3, up to $4 of them, and
// how many rows of each are in its journal and in edges, about. It reads no further than it needs
// to.
const endedSQL = `
SELECT w.type, w.id, j.seq + (SELECT count(*) FROM {edges} e WHERE e.type = w.type AND e.id = w.id)
FROM (SELECT type, id FROM {task} WHERE (type, id) > ($1, $2) ORDER BY type, id LIMIT $5) w,
  LATERAL (SELECT seq, at, final FROM {journal} WHERE type = w.type AND id = w.id
    ORDER BY seq DESC LIMIT 1) j
WHERE j.final <> '' AND j.at <= $3
ORDER BY w.type, w.id LIMIT $4`

// visit reads the next window of a pass.
func (x *trim) visit() (w window, err error) {
	rows, _ := x.tx.Query(x.ctx, x.sql(endedSQL), x.at.Type, x.at.ID, x.since, trimTasks,
		trimWindow)
	var one taskRef
	var size, sum int64
	full := false
	_, err = pgx.ForEachRow(rows, []any{&one.number, &one.id, &size}, func() error {
		sum += size
		if full = full || len(w.ended) > 0 && sum > trimRows; !full {
			w.ended = append(w.ended, one)
		}
		return nil
	})
	if n := len(w.ended); err != nil || full || n == trimTasks {
		if n > 0 {
			w.last = w.ended[n-1]
		}
		return w, err
	}
	rows, _ = x.tx.Query(x.ctx, x.sql(`SELECT type, id FROM {task}
		WHERE (type, id) > ($1, $2) ORDER BY type, id OFFSET $3 LIMIT 1`), x.at.Type, x.at.ID,
		trimWindow-1)
	w.ends = true
	_, err = pgx.ForEachRow(rows, []any{&w.last.number, &w.last.id}, func() error {
		w.ends = false
		return nil
	})
	return w, err
}

// sql fills in the tables of the roll.
func (x *trim) sql(sql string) string { return x.set.Tables.SQL(x.position, sql) }

// ended is a task that goes unless another one needs it.
type ended struct {
	taskRef
	options asyncflow.Options
	bytes   int64
	needed  bool
}

// candidates reads the tasks of a window again, under the lock of the roll: a redrive may have come
// before. If they have too many bytes, it ends the window earlier.
func (x *trim) candidates(w *window) (all []ended, err error) {
	numbers, ids := columns(w.ended)
	rows, _ := x.tx.Query(x.ctx, x.sql(`
		SELECT t.type, t.id, coalesce({options}, '{}'), octet_length(t.context) + (
		    SELECT coalesce(sum(coalesce(octet_length(o.output), 0)
		      + coalesce(octet_length(o.error), 0)), 0)
		    FROM {journal} o WHERE o.type = t.type AND o.id = t.id)
		FROM unnest($1::int[], $2::bigint[]) WITH ORDINALITY AS u (type, id, n),
		  LATERAL (SELECT * FROM {task} t WHERE t.type = u.type AND t.id = u.id OFFSET 0) t,
		  LATERAL (SELECT at, final FROM {journal} j WHERE j.type = u.type AND j.id = u.id
		    ORDER BY seq DESC LIMIT 1) j
		WHERE j.final <> '' AND j.at <= $3 ORDER BY u.n`), numbers, ids, x.since)
	var one ended
	var sum int64
	full := false
	_, err = pgx.ForEachRow(rows, []any{&one.number, &one.id, &one.options, &one.bytes},
		func() error {
			sum += one.bytes
			if full = full || len(all) > 0 && sum > trimBytes; !full {
				all = append(all, one)
			}
			one = ended{}
			return nil
		})
	if full {
		w.last = all[len(all)-1].taskRef
		w.ends = false
	}
	return all, err
}

// columns returns the numbers and the ids of tasks.
func columns(tasks []taskRef) (numbers []int32, ids []int64) {
	numbers = make([]int32, len(tasks))
	ids = make([]int64, len(tasks))
	for i, t := range tasks {
		numbers[i] = t.number
		ids[i] = t.id
	}
	return numbers, ids
}
