package settings

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// HasDeletedTypes reports whether rows of deleted types may be left in a tenant's shared tables.
func (s *types) HasDeletedTypes(ctx context.Context, tenant string) (has bool, err error) {
	err = s.core.DB(tenant).QueryRow(ctx,
		config.NewTables(tenant, config.SharedSet).SQL(0,
			`SELECT EXISTS (SELECT FROM {deleted})`)).Scan(&has)
	return has, postgres.Wrap(err, "HasDeletedTypes(%q)", tenant)
}

// Deleting says how far DeleteRows has come. The zero value is the beginning.
type Deleting struct {
	Rows int  // that the last call deleted
	More bool // whether there may be more now

	number int32 // of the deleted type
	from   int64 // the id from which on rows may be left
	tree   TreeRows
}

// DeleteRows deletes some rows of deleted types from a tenant's shared tables, at most JobBatch of
// each table. It goes on where an earlier call has ended: a search from the beginning would look at
// all rows that are deleted, as long as a snapshot keeps them (measured with 600,000 of them: 40 ms
// a call, otherwise 5).
func (s *types) DeleteRows(ctx context.Context, tenant string, at Deleting) (Deleting, error) {
	shared := config.NewTables(tenant, config.SharedSet)
	at.Rows = 0
	at.More = false
	err := s.core.Exclusively(ctx, tenant, "delete-rows", func(tx pgx.Tx, _ time.Time) error {
		b := &pgx.Batch{}
		postgres.QueueSettings(b, postgres.SearchSettings)
		var number int32
		var first, end int
		b.Queue(shared.SQL(0, `SELECT d.number, coalesce(s.first_pos, 1), coalesce(s.end_pos, 0)
			FROM {deleted} d LEFT JOIN {sets} s ON s.name = ''
			ORDER BY d.number LIMIT 1`)).QueryRow(
			func(row pgx.Row) error { return row.Scan(&number, &first, &end) })
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return err
		}
		if at.number != number {
			at = Deleting{number: number}
		}
		at.from = max(at.from, asyncflow.NewTaskID("", first, 0).Number)
		at.More = true
		position := asyncflow.TaskID{Number: at.from}.Position()
		if position > end {
			return at.deleteLast(ctx, tx, shared)
		}
		return at.deleteFrom(ctx, tx, shared, position)
	})
	switch {
	// there are none, or the next run does it
	case errors.Is(err, pgx.ErrNoRows) || config.RolledOn(err):
		return Deleting{}, nil
	case err != nil:
		return Deleting{}, postgres.Wrap(err, "DeleteRows(%q)", tenant)
	}
	return at, nil
}

// deleteFrom deletes the next rows of the type from the tables of one roll.
func (d *Deleting) deleteFrom(
	ctx context.Context, tx pgx.Tx, shared *config.TableNames, position int,
) error {
	next := asyncflow.NewTaskID("", position+1, 0).Number
	var last *int64
	err := tx.QueryRow(ctx, shared.SQL(position, `SELECT max(id) FROM (SELECT id FROM {task}
		WHERE type = $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4) t`), d.number, d.from, next,
		catalog.JobBatch).Scan(&last)
	if err != nil || last == nil {
		d.from = next
		return err
	}
	tag, err := tx.Exec(ctx, shared.SQL(position, `DELETE FROM {journal} WHERE ctid = ANY (ARRAY(
		SELECT ctid FROM {journal} WHERE type = $1 AND id BETWEEN $2 AND $3 LIMIT $4))`),
		d.number, d.from, *last, catalog.JobBatch)
	d.Rows = int(tag.RowsAffected())
	if err != nil || d.Rows == catalog.JobBatch { // their tasks may have more
		return err
	}
	if err := d.deleteSearch(ctx, tx, shared, position, *last); err != nil {
		return err
	}
	tag, err = tx.Exec(ctx, shared.SQL(position, `DELETE FROM {task}
		WHERE type = $1 AND id BETWEEN $2 AND $3`), d.number, d.from, *last)
	d.Rows += int(tag.RowsAffected())
	d.from = *last + 1
	return err
}

// deleteSearch deletes what the next tasks of the type are found by, up to a last one.
func (d *Deleting) deleteSearch(
	ctx context.Context, tx pgx.Tx, shared *config.TableNames, position int, last int64,
) error {
	has, err := config.HasSearch(ctx, tx, shared, position)
	if err != nil || !has {
		return err
	}
	_, err = tx.Exec(ctx, shared.SQL(position, records.DeleteSearchSQL+
		`t.type = $1 AND t.id BETWEEN $2 AND $3))`), d.number, d.from, last)
	return err
}

// deleteLast deletes what is left of the type when its tasks are gone.
func (d *Deleting) deleteLast(ctx context.Context, tx pgx.Tx, shared *config.TableNames) error {
	more, err := d.tree.Delete(ctx, tx, shared, `SELECT $1::int`, `true`, d.number)
	if err != nil {
		return err
	}
	err = d.deleteSignals(ctx, tx, shared)
	if err == nil && !more && d.Rows == 0 {
		_, err = tx.Exec(ctx, shared.SQL(0, `DELETE FROM {deleted} WHERE number = $1`), d.number)
	}
	return err
}

// DeleteSignalsSQL deletes some signals of a type. Each is in one of three indexes at least; none
// has all, and without one Postgres would read the signals of all types.
const DeleteSignalsSQL = `
DELETE FROM {signals} WHERE ctid = ANY (ARRAY(
  (SELECT ctid FROM {signals} WHERE type = $1 AND NOT taken AND task IS NOT NULL
    ORDER BY type, task LIMIT $2) UNION ALL
  (SELECT ctid FROM {signals} WHERE type = $1 AND NOT taken AND task IS NULL
    ORDER BY type, key LIMIT $2) UNION ALL
  (SELECT ctid FROM {signals} WHERE type = $1 AND idempotency_key IS NOT NULL
    ORDER BY type, idempotency_key LIMIT $2) LIMIT $2))`

// deleteSignals deletes some signals of the type.
func (d *Deleting) deleteSignals(
	ctx context.Context, tx pgx.Tx, shared *config.TableNames,
) error {
	tag, err := tx.Exec(ctx, shared.SQL(0, DeleteSignalsSQL), d.number, catalog.JobBatch)
	d.Rows = d.tree.Rows + int(tag.RowsAffected())
	return err
}
