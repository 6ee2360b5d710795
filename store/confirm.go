package store

import "context"

// confirm makes a transaction, open or of its own, as durable as any change: its commit waits for
// the standby, and so for everything that the transaction has seen.
func confirm(ctx context.Context, db execer) error {
	_, err := db.Exec(ctx, confirmSQL)
	return err
}

// confirmSQL writes a record that has no reader. So the commit of its transaction waits for the
// standby like any other, and thereby for everything that was committed before. A server that is a
// standby itself refuses to assign a transaction id, as it refuses any write; the record alone
// would be an internal error there.
const confirmSQL = `SELECT pg_current_xact_id(), pg_logical_emit_message(true, 'asyncflow', '')`
