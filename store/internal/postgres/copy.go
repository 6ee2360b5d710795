package postgres

import (
	"bytes"
	"context"

	"github.com/jackc/pgx/v5"
)

// CopyOut returns the rows of a query without arguments, in the binary format of COPY. They are in
// memory as a whole.
func CopyOut(ctx context.Context, tx pgx.Tx, query string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patientStatement)
	defer cancel()
	var rows bytes.Buffer
	_, err := tx.Conn().PgConn().CopyTo(ctx, &rows, `COPY (`+query+`) TO STDOUT (FORMAT binary)`)
	return rows.Bytes(), err
}

// CopyFrozen adds rows of CopyOut to a table that the transaction has truncated. Each transaction
// sees them at once, also one with an older snapshot, such as that of a backup.
func CopyFrozen(ctx context.Context, tx pgx.Tx, table string, rows []byte) error {
	ctx, cancel := context.WithTimeout(ctx, patientStatement)
	defer cancel()
	_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(rows),
		`COPY `+table+` FROM STDIN (FORMAT binary, FREEZE)`)
	return err
}
