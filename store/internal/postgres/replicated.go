package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrNotReplicated is the error of a commit that may be on no synchronous standby: the wait for it
// was cancelled. To Postgres such a commit is done and gives a warning only, see ADR 26. Callers
// treat it as a commit with a lost answer.
var ErrNotReplicated = errors.New("the wait for a synchronous standby was cancelled: " +
	"the transaction is committed on the primary alone")

// notReplicated is the key under which a connection remembers the warning.
const notReplicated = "asyncflow: not replicated"

// noteNotReplicated remembers the warning. It goes by the place in the server's code, which
// is the same everywhere: the text is translated, and the SQLSTATE is unspecific.
func noteNotReplicated(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" {
		conn.CustomData()[notReplicated] = true
	}
}

// forgetNotReplicated makes a connection forget the warning of an earlier use, perhaps for another
// tenant, before it is used again.
func forgetNotReplicated(_ context.Context, conn *pgx.Conn) (usable bool, err error) {
	delete(conn.PgConn().CustomData(), notReplicated)
	return true, nil
}

// BeginFunc is pgx.BeginFunc on a connection outside any pool. After a commit that may be on no
// synchronous standby it returns ErrNotReplicated.
func BeginFunc(ctx context.Context, conn *pgx.Conn, do func(pgx.Tx) error) error {
	return FirstError(pgx.BeginFunc(ctx, conn, do), replicated(conn))
}

// replicated returns ErrNotReplicated once after a commit that was cancelled while it waited.
func replicated(conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	if data[notReplicated] == nil {
		return nil
	}
	delete(data, notReplicated)
	return ErrNotReplicated
}
