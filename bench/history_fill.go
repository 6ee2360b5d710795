package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// fillHistory writes finished tasks, one for each of the last milliseconds, and returns their ids.
// Of a hundred tasks, 10 failed and 1 was cancelled; of 10,000 errors, one is a rare one. The
// numbers are taken from the roll's row, as nodes do.
func fillHistory(
	ctx context.Context, d *rig.Database, taskType string, tasks int,
) (filled rig.Range, err error) {
	err = pgx.BeginFunc(ctx, d.Conn, func(tx pgx.Tx) error {
		first, number, err := takeNumbers(ctx, tx, taskType, tasks)
		if err != nil {
			return err
		}
		filled = rig.Range{First: first, Last: first + int64(tasks) - 1}
		for _, of := range []struct{ kind, sql string }{
			{"task", fillTasks}, {"journal", fillJournal},
		} {
			tables, err := d.Tables(ctx, of.kind, taskType)
			if err != nil {
				return err
			}
			newest := tables[len(tables)-1].Name
			if _, err := tx.Exec(ctx, `INSERT INTO `+newest+of.sql, filled.First, filled.Last,
				number); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return filled, err
	}
	for _, kind := range []string{"task", "journal"} {
		tables, err := d.Tables(ctx, kind, taskType)
		if err != nil {
			return filled, err
		}
		newest := tables[len(tables)-1].Name
		if _, err := d.Conn.Exec(ctx, `ANALYZE `+newest); err != nil { // as autovacuum would
			return filled, err
		}
	}
	return filled, d.Checkpoint(ctx)
}

// takeNumbers takes ids from the newest roll in which a type's tasks are. It returns the first, and
// the type's own number.
func takeNumbers(
	ctx context.Context, tx pgx.Tx, taskType string, tasks int,
) (first int64, number int, err error) {
	err = tx.QueryRow(ctx, `
		UPDATE `+rig.Schema+`.rolls r SET next_number = next_number + $2
		FROM `+rig.Schema+`.task_types t JOIN `+rig.Schema+`.table_sets s ON s.name = t.table_set
		WHERE t.name = $1 AND r.table_set = s.name AND r.position = s.end_pos
		RETURNING (r.position::bigint << 40) + r.next_number - $2, t.number`,
		taskType, tasks).Scan(&first, &number)
	return first, number, err
}

const fillTasks = ` (type, id, created_at, order_time, context)
	SELECT $3::int, id, at, at, '{"n":' || id || ',"pad":"' || repeat('x', 172) || '"}'
	FROM (SELECT id, now() - ($2 - id + 10000) * interval '1 ms' AS at
	      FROM generate_series($1::bigint, $2) id) t`

const fillJournal = `
	  (type, id, seq, at, stage, attempt, outcome, final, endpoint, duration, status, error)
	SELECT $3::int, id, 1, now() - ($2 - id + 9990) * interval '1 ms', 'call', 1,
	  CASE final WHEN 'succeeded' THEN 'done' WHEN 'failed' THEN 'failed' ELSE 'cancelled' END,
	  final, 'http://127.0.0.1:12345/deliver', 0.005,
	  CASE final WHEN 'succeeded' THEN 200 WHEN 'failed' THEN 503 END,
	  CASE
	    WHEN final = 'failed' AND id % 100000 = 7 THEN 'HTTP 418: I am a teapot'
	    WHEN final = 'failed' THEN 'HTTP 503: no upstream is there'
	    WHEN final = 'cancelled' THEN 'cancelled by an operator'
	  END
	FROM (SELECT id, CASE WHEN id % 10 = 7 THEN 'failed' WHEN id % 100 = 8 THEN 'cancelled'
	                      ELSE 'succeeded' END AS final
	      FROM generate_series($1::bigint, $2) id) t`
