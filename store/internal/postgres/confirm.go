package postgres

import "context"

// Confirm makes a transaction, open or of its own, as durable as any change: its commit waits for
// the standby, and so for everything that the transaction saw.
func Confirm(ctx context.Context, db Execer) error {
	_, err := db.Exec(ctx, ConfirmSQL)
	return err
}

// ConfirmSQL writes a record without a reader. So the commit of its transaction waits for the
// standby like any other, and thereby for everything that was committed before. A server that is a
// standby itself refuses to assign a transaction id, as it refuses any write; the record alone
// would be an internal error there.
const ConfirmSQL = `SELECT pg_current_xact_id(), pg_logical_emit_message(true, 'asyncflow', '')`
