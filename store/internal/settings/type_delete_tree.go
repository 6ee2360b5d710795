package settings

import (
	"cmp"
	"context"
	"math"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// TreeTables have rows of tasks of all rolls, by the type and the id of the task.
var TreeTables = []string{"{edges}", "{fan_outs}", "{spawns}", "{past_keys}", "{checkpoints}",
	"{signal_waits}", "{notifications}", "{content_waits}", "{lifetimes}"}

// TreeRows says how far the deletion of what tasks have in tables of all rolls has come: edges,
// fan-outs, spawns, past keys, checkpoints, waits for signals, notifications, content_waits and
// lifetimes of tasks that are gone. The zero value is the beginning.
type TreeRows struct {
	Rows int // that the last call deleted

	from map[string]treePlace // by table
}

// treePlace is from which task on rows may be left.
type treePlace struct {
	number int32 // of the type
	id     int64
}

// Delete deletes some rows, at most JobBatch of each table, and reports whether there may be more.
// types selects the numbers of types; the condition on their rows calls a row r.
//
// It reads the rows of each type by an index, in its order, until it has enough. In a table that
// was never analysed, Postgres would read and sort all of them for each call. It goes on where the
// last call has ended: a search from the beginning would look at all rows that are deleted, as long
// as a snapshot keeps them. At the end it looks from the beginning once more.
func (r *TreeRows) Delete(
	ctx context.Context, tx pgx.Tx, t *config.TableNames, types, condition string, args ...any,
) (more bool, err error) {
	_, err = tx.Exec(ctx, `SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
		SET LOCAL jit = off`)
	if err != nil {
		return false, err
	}
	r.Rows = 0
	from := map[string]treePlace{}
	for _, table := range TreeTables {
		place, ok := r.from[table]
		if !ok {
			place = treePlace{math.MinInt32, math.MinInt64}
		}
		n, last, err := deleteTreeRows(ctx, tx, t.SQL(0, table), t.SQL(0, types),
			t.SQL(0, condition), place, args)
		if err != nil {
			return false, err
		}
		if r.Rows += n; n > 0 {
			place = last
		}
		from[table] = place
	}
	more = r.Rows > 0 || r.from != nil
	if r.from = from; r.Rows == 0 {
		r.from = nil
	}
	return more, nil
}

// deleteTreeRows deletes rows of one table from a place on. It returns their number, and the last
// place.
func deleteTreeRows(
	ctx context.Context, tx pgx.Tx, table, types, condition string, from treePlace, args []any,
) (n int, last treePlace, err error) {
	number, id := "$"+strconv.Itoa(len(args)+1), "$"+strconv.Itoa(len(args)+2)
	limit := ` LIMIT ` + strconv.Itoa(catalog.JobBatch)
	rows, err := tx.Query(ctx, `DELETE FROM `+table+` WHERE ctid = ANY (ARRAY(
		SELECT l.at FROM (SELECT * FROM (`+types+`) AS n (type) WHERE type >= `+number+`::int
		  ORDER BY type) AS n, LATERAL (
		  SELECT r.ctid AS at FROM `+table+` r WHERE r.type = n.type
		    AND r.id >= CASE WHEN n.type = `+number+`::int THEN `+id+`::bigint ELSE 0 END
		    AND `+condition+`
		  ORDER BY r.type, r.id`+limit+`) l`+limit+`)) RETURNING type, id`,
		append(args[:len(args):len(args)], from.number, from.id)...)
	if err != nil {
		return 0, last, err
	}
	var at treePlace
	_, err = pgx.ForEachRow(rows, []any{&at.number, &at.id}, func() error {
		n++
		if cmp.Or(cmp.Compare(at.number, last.number), cmp.Compare(at.id, last.id)) > 0 {
			last = at
		}
		return nil
	})
	return n, last, err
}
