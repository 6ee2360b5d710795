package store

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// With a synchronous standby, an answer must follow a commit that the standby has. Postgres
// waits for it in two cases less than one would think, see ADR 26:
//
//   - A transaction that wrote nothing doesn't wait. So a caller that answers because of rows that an
//     earlier try has committed calls confirm first.
//   - A wait that is cancelled ends well, with a warning. So connections listen for it, and
//     the commit counts as one whose answer was lost.

// confirmSQL writes a record that nobody reads. The commit of its transaction then waits for
// the standby as any other, and so for all that was committed before. A server that is a standby
// itself refuses it by the number of the transaction, as it refuses any write: the record alone
// would be an internal error there.
const confirmSQL = `SELECT pg_current_xact_id(), pg_logical_emit_message(true, 'asyncflow', '')`

// confirm writes something in a transaction, or in one of its own, whose commit is therefore
// as durable as that of any change. So is then all that the transaction has seen.
func confirm(ctx context.Context, db execer) error {
	_, err := db.Exec(ctx, confirmSQL)
	return err
}

// errNotReplicated is the error of a commit that no standby may have. To Postgres it is done.
var errNotReplicated = errors.New(
	"the wait for a synchronous standby was cancelled: the transaction is committed on the primary alone")

// notReplicated is where a connection remembers the warning.
const notReplicated = "asyncflow: not replicated"

// noteNotReplicated listens for the warning. Its text is translated, and its code says nothing;
// where it comes from is the same everywhere.
func noteNotReplicated(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[notReplicated] = true
	}
}

// replicated returns errNotReplicated once after a commit on a connection whose wait was
// cancelled.
func replicated(conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	if data[notReplicated] == nil {
		return nil
	}
	delete(data, notReplicated)
	return errNotReplicated
}

// doubt returns the error of a transaction that began leases. When nobody knows whether it was
// committed, sure has to find that commits are answered before more leases begin.
func (s *Store) doubt(err error) error {
	if err != nil && isPassing(err) {
		s.doubtful.Store(true)
	}
	return err
}

// sure makes sure, after a doubt, that the database answers commits. While a standby is away each
// try would commit leases of which no node knows: their tasks would lose an attempt each time,
// and fail in the end though they were never delivered.
func (s *Store) sure(ctx context.Context, key TypeKey) error {
	if !s.doubtful.Load() {
		return nil
	}
	err := confirm(ctx, s.hot(key))
	if err == nil {
		s.doubtful.Store(false)
	}
	return err
}
