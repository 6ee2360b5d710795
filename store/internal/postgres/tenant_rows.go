package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// tenantRows are rows that at their end also end their batch or transaction.
type tenantRows struct {
	pgx.Rows
	end func() error // nil once called
	err error
}

// Next goes to the next row, and closes the rows after the last one.
func (r *tenantRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

// Close ends the rows, and their batch or transaction.
func (r *tenantRows) Close() {
	r.Rows.Close()
	if r.end != nil {
		r.err = r.end()
		r.end = nil
	}
}

// Err returns why there are no more rows; nil if all were read.
func (r *tenantRows) Err() error { return FirstError(r.Rows.Err(), r.err) }

// failedRows are the rows of a statement that failed.
type failedRows struct {
	pgx.Rows // nil
	err      error
}

func (r failedRows) Next() bool { return false }
func (r failedRows) Close()     {}
func (r failedRows) Err() error { return r.err }

// tenantRow is the first row of a query.
type tenantRow struct{ rows pgx.Rows }

// Scan reads the row; pgx.ErrNoRows when there is none.
func (r tenantRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		return FirstError(r.rows.Err(), pgx.ErrNoRows)
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// placedRows are rows of a statement on placed tables.
type placedRows struct {
	pgx.Rows
	placed *PlacedTables
}

// Err returns why there are no more rows; nil if all were read.
func (r placedRows) Err() error { return r.placed.note(r.Rows.Err()) }

// placedResults are the results of a batch on placed tables.
type placedResults struct {
	pgx.BatchResults
	placed *PlacedTables
}

// Close ends the batch.
func (r placedResults) Close() error { return r.placed.note(r.BatchResults.Close()) }

// failedBatch is a batch that wasn't sent.
type failedBatch struct{ err error }

func (r failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r failedBatch) Query() (pgx.Rows, error)         { return failedRows{err: r.err}, r.err }
func (r failedBatch) QueryRow() pgx.Row                { return tenantRow{failedRows{err: r.err}} }
func (r failedBatch) Close() error                     { return r.err }
func (r failedBatch) Tx() pgx.Tx                       { return nil }
