package upkeep

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// rest is what remains of a roll.
type rest struct {
	task, journal string // its rows, as JSON
	shrinks       bool   // there are other tasks, or their space
}

// readRest reads the rows of some tasks of a roll, and keeps all rows from being changed. It fails
// with errRemaining if they are too large.
func readRest(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int, remaining config.TaskRows,
) (r rest, err error) {
	task := set.Tables.Task(position)
	journal := set.Tables.Journal(position)
	err = config.LockTables(ctx, tx, set.Tenant, []string{task, journal}, "SHARE")
	if err != nil {
		return r, err
	}
	var n int
	var size int64
	err = tx.QueryRow(ctx, `SELECT
		(SELECT count(*) FROM (SELECT FROM `+task+` LIMIT $3) t),
		(SELECT coalesce(sum(octet_length(context) + coalesce(octet_length(options::text), 0)), 0)
		  FROM (`+rowsOf(task)+`) t)
		+ (SELECT coalesce(sum(coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)
		    + coalesce(octet_length(options::text), 0) + 100), 0)
		  FROM (`+rowsOf(journal)+`) j)`, remaining.Types, remaining.IDs, len(remaining.IDs)+1).
		Scan(&n, &size)
	if err != nil {
		return r, err
	}
	trimmed, err := set.Trimmed(ctx, tx, position)
	if r.shrinks = trimmed || n > len(remaining.IDs); err != nil || !r.shrinks {
		return r, err
	}
	if size > mostRemainingBytes {
		return r, errRemaining
	}
	err = tx.QueryRow(ctx, `SELECT
		(SELECT coalesce(json_agg(t), '[]')::text FROM (`+rowsOf(task)+`) t),
		(SELECT coalesce(json_agg(j), '[]')::text FROM (`+rowsOf(journal)+`) j)`,
		remaining.Types, remaining.IDs).Scan(&r.task, &r.journal)
	return r, err
}

// rewriteRoll empties the tables of a roll but for what remains. Readers wait for that.
func rewriteRoll(
	ctx context.Context, tx pgx.Tx, set *config.TableSet, position int, r rest,
) error {
	task := set.Tables.Task(position)
	journal := set.Tables.Journal(position)
	searchable, err := config.HasSearch(ctx, tx, set.Tables, position)
	if err != nil {
		return err
	}
	all := task + `, ` + journal
	if searchable { // first, as lists read it first
		all = set.Tables.Search(position) + `, ` + all
	}
	b := &pgx.Batch{}
	b.Queue(`LOCK TABLE ` + all + ` IN ACCESS EXCLUSIVE MODE`)
	b.Queue(`ALTER TABLE ` + task + ` DROP CONSTRAINT ` + postgres.Sealed)
	b.Queue(`TRUNCATE ` + all)
	b.Queue(insertRows(task), r.task)
	b.Queue(insertRows(journal), r.journal)
	if searchable {
		b.Queue(set.Tables.SQL(position, records.RefillSearchSQL), position)
	}
	b.Queue(sealTable(set, task))
	b.Queue(set.Tables.SQL(0, `UPDATE {rolls}
		SET trim_at = NULL, trim_type = NULL, trim_id = NULL, trimmed = false
		WHERE table_set = $1 AND position = $2`), set.Name, position)
	return tx.SendBatch(ctx, b).Close()
}

// insertRows inserts the rows $1, as JSON, into a table.
func insertRows(table string) string {
	return `INSERT INTO ` + table + ` SELECT * FROM json_populate_recordset(NULL::` + table + `, $1::json)`
}

// rowsOf selects the rows of the tasks $1 and $2, types and ids, from a table of their roll, by its
// index.
func rowsOf(table string) string {
	return `SELECT t.* FROM unnest($1::int[], $2::bigint[]) AS u (type, id),
		LATERAL (SELECT * FROM ` + table + ` t WHERE t.type = u.type AND t.id = u.id OFFSET 0) t`
}
