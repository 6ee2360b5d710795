package config

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Trim says how far the trimming of a roll has come, which deletes its ended tasks in small steps.
type Trim struct {
	At   time.Time // when the next step is due; zero: none is planned
	Type int32     // the number of the type of the last visited task; 0: a pass begins
	ID   int64     // of this task
}

// ReadTrim returns how far the trimming of a roll has come.
func (s *TableSet) ReadTrim(ctx context.Context, tx pgx.Tx, position int) (t Trim, err error) {
	var at *time.Time
	err = tx.QueryRow(ctx, s.Tables.SQL(0, `
		SELECT trim_at, coalesce(trim_type, 0), coalesce(trim_id, 0) FROM {rolls}
		WHERE table_set = $1 AND position = $2`), s.Name, position).Scan(&at, &t.Type, &t.ID)
	t.At = postgres.OrZero(at)
	return t, err
}

// SaveTrim writes how far the trimming of a roll has come. trimmed says that it has just deleted
// tasks.
func (s *TableSet) SaveTrim(
	ctx context.Context, tx pgx.Tx, position int, t Trim, trimmed bool,
) error {
	_, err := tx.Exec(ctx, s.Tables.SQL(0, `UPDATE {rolls} SET trim_at = $3,
		  trim_type = nullif($4::int, 0), trim_id = nullif($5::bigint, 0), trimmed = trimmed OR $6
		WHERE table_set = $1 AND position = $2`), s.Name, position, t.At, t.Type, t.ID, trimmed)
	return err
}

// Trimmed reports whether tasks of a roll were deleted since its tables were made.
func (s *TableSet) Trimmed(ctx context.Context, tx pgx.Tx, position int) (trimmed bool, err error) {
	err = tx.QueryRow(ctx, s.Tables.SQL(0, `SELECT trimmed FROM {rolls}
		WHERE table_set = $1 AND position = $2`), s.Name, position).Scan(&trimmed)
	return trimmed, err
}

// TrimAgain returns how long after the end of a pass through a roll the next one begins.
func TrimAgain(retention time.Duration) time.Duration {
	return min(max(retention/10, time.Hour), 24*time.Hour)
}

// vacuumAtOnce has autovacuum clean a table once it has any old rows.
const vacuumAtOnce = `autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0,
	toast.autovacuum_vacuum_threshold = 0, toast.autovacuum_vacuum_scale_factor = 0`

// VacuumSoon has Postgres vacuum the tables of a roll about a minute after rows were overwritten or
// deleted, however large they are: the old rows are there until then. Other rolls have no such
// rows, and no vacuum.
func (t *TableNames) VacuumSoon(
	ctx context.Context, tx pgx.Tx, position int, searchable bool,
) error {
	all := []string{t.Task(position), t.Journal(position)}
	if searchable {
		all = append(all, t.Search(position))
	}
	for _, table := range all {
		var known bool
		err := tx.QueryRow(ctx, `SELECT coalesce('autovacuum_vacuum_threshold=0'
			= ANY (reloptions), false) FROM pg_class WHERE oid = $1::text::regclass`, table).
			Scan(&known)
		if err != nil {
			return err
		}
		if known {
			continue
		}
		if _, err := tx.Exec(ctx, `ALTER TABLE `+table+` SET (`+vacuumAtOnce+`)`); err != nil {
			return err
		}
	}
	return nil
}
