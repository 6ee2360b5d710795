package upkeep

import (
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/settings"
)

// deleteEnded deletes the ended tasks of a window that nothing needs, and reports whether there
// were any.
func (x *trim) deleteEnded(w *window) (deleted bool, err error) {
	if len(w.ended) == 0 {
		return false, nil
	}
	all, err := x.candidates(w)
	if err != nil || len(all) == 0 {
		return false, err
	}
	kinds, err := x.readKinds()
	if err != nil {
		return false, err
	}
	if err := x.markNeeded(all, kinds); err != nil {
		return false, err
	}
	byType := map[int32][]ended{}
	for _, e := range all {
		if !e.needed {
			byType[e.number] = append(byType[e.number], e)
		}
	}
	if len(byType) == 0 {
		return false, nil
	}
	searchable, err := config.HasSearch(x.ctx, x.tx, x.set.Tables, x.position)
	if err != nil {
		return false, err
	}
	b := &pgx.Batch{}
	for number, gone := range byType {
		x.queueDelete(b, number, kinds[number].name, gone, searchable)
	}
	if err := x.tx.SendBatch(x.ctx, b).Close(); err != nil {
		return false, err
	}
	return true, x.set.Tables.VacuumSoon(x.ctx, x.tx, x.position, searchable)
}

// DeleteKeysSQL deletes the keys of tasks that go. For its form see records.TakeAnyWaitSQL.
const DeleteKeysSQL = `
DELETE FROM {keys} k
USING (SELECT $1::text AS type, u.* FROM unnest($2::text[], $3::bigint[]) AS u (key, id)
  OFFSET 0) u
WHERE k.type = ANY (ARRAY[u.type]) AND k.key BETWEEN u.key AND u.key AND k.id = u.id`

// TakeRowsSQL deletes the rows of tasks in a table. For its form see records.TakeAnyWaitSQL.
func TakeRowsSQL(table string) string {
	return `
DELETE FROM ` + table + ` WHERE ctid = ANY (ARRAY(
  SELECT k.t FROM unnest($2::bigint[]) AS u (id), LATERAL (
    SELECT ctid AS t FROM ` + table + ` WHERE type = $1 AND id BETWEEN u.id AND u.id
    ORDER BY id FOR UPDATE) k))`
}

// DeleteRowsSQL deletes the rows of tasks in a table where none is ever updated but by an erasure,
// which locks their roll.
func DeleteRowsSQL(table string) string {
	return `
DELETE FROM ` + table + ` x
USING (SELECT $1::int AS type, id FROM unnest($2::bigint[]) AS id OFFSET 0) u
WHERE x.type = ANY (ARRAY[u.type]) AND x.id BETWEEN u.id AND u.id`
}

// queueDelete adds the deletion of ended tasks of one type, with all that is theirs.
func (x *trim) queueDelete(
	b *pgx.Batch, number int32, name string, gone []ended, searchable bool,
) {
	_, ids := columns(refsOf(gone))
	keys := make([]string, len(gone))
	for i := range gone {
		keys[i] = gone[i].options.Key
	}
	if searchable { // first, as lists read it first; it needs the options of the tasks
		b.Queue(x.sql(records.DeleteSearchSQL+records.OfTasksSQL+`))`), number, ids)
	}
	b.Queue(x.sql(DeleteRowsSQL("{task}")), number, ids)
	b.Queue(x.sql(DeleteRowsSQL("{journal}")), number, ids)
	b.Queue(x.sql(DeleteKeysSQL), name, keys, ids)
	for _, table := range settings.TreeTables {
		records.QueueTake(b, func(pgx.Rows) error { return nil }, x.sql(TakeRowsSQL(table)), number,
			ids)
	}
}
