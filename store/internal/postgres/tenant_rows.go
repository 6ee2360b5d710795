package postgres

import (
	"github.com/jackc/pgx/v5"
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
