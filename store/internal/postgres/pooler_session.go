package postgres

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow"
)

// processSQL is the number of the server's process that answers.
const processSQL = `pg_catalog.pg_backend_pid()`

// isDirect is a condition that holds when nothing stands between this machine and the server. A
// pooler gives its clients numbers of processes that don't exist on the server.
func isDirect(conn *pgconn.PgConn) string {
	return fmt.Sprintf("%s OPERATOR(pg_catalog.=) %d", processSQL, conn.PID())
}

// sessionChecks holds a sessionCheck for each pooler, by address, database and user.
var sessionChecks sync.Map

// sessionCheck is the check of one pooler. It succeeds once: later, all connections of the pooler
// may be in use.
type sessionCheck struct {
	turn chan struct{} // holds one: connections check one after the other
	kept bool
}

const (
	// otherClients is how many clients of a pooler a new connection is compared with. With as many
	// poolers behind one address, two of the clients are on one pooler.
	otherClients = 3
	// otherClient bounds the time that another client than the first takes.
	otherClient = time.Second
)

// checkKeepsSession refuses a pooler in transaction mode. It would lose the settings and the role
// of a connection, or give them to another client.
func checkKeepsSession(ctx context.Context, conn *pgconn.PgConn, config *pgconn.Config) error {
	address := conn.Conn().RemoteAddr()
	key := address.String() + "/" + config.Database + "/" + config.User
	found, _ := sessionChecks.LoadOrStore(key, &sessionCheck{turn: make(chan struct{}, 1)})
	check := found.(*sessionCheck)
	select {
	case check.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-check.turn }()
	if check.kept {
		return nil
	}
	kept, err := keepsSession(ctx, conn, config)
	if err == nil && !kept {
		return transactionMode(address)
	}
	check.kept = kept
	return err
}

// transactionMode is the error of a pooler that keeps no sessions.
func transactionMode(address net.Addr) error {
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"the pooler at %s gives a connection to the next client after each transaction "+
			"(transaction mode): settings of a connection, such as search_path, would be "+
			"lost, or another client's. Let DATABASE_URL lead to the server directly or to "+
			"a pooler in session mode; this pooler may be ASYNCFLOW_POOLED_URL beside it", address)
}

// keepsSession reports whether a pooler gives each client a session of its own. One in transaction
// mode gives the server's connection of one client to the next one, or another connection to the
// same client; one in session mode never does. No setting is needed to see that. Each client asks
// twice in a row, as connections that are used in turn may come back to each client otherwise.
func keepsSession(
	ctx context.Context, conn *pgconn.PgConn, config *pgconn.Config,
) (kept bool, err error) {
	first, kept, err := process(ctx, conn)
	if err != nil || !kept {
		return false, err
	}
	seen := []string{first}
	for i := range otherClients {
		bounded := ctx
		if i > 0 {
			var cancel context.CancelFunc
			bounded, cancel = context.WithTimeout(ctx, otherClient)
			defer cancel()
		}
		other, err := connectBeside(bounded, conn, config)
		if err == nil {
			defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
			var its string
			its, kept, err = process(bounded, other)
			if err == nil && (!kept || slices.Contains(seen, its)) {
				return false, nil
			}
			seen = append(seen, its)
		}
		if err != nil && i > 0 { // there is no connection for that many clients at the pooler
			break
		}
		if err != nil {
			return false, err
		}
	}
	again, kept, err := process(ctx, conn)
	return kept && again == first, err
}

// connectBeside opens another connection to the address of a connection, also where a URL names
// several hosts.
func connectBeside(
	ctx context.Context, conn *pgconn.PgConn, config *pgconn.Config,
) (*pgconn.PgConn, error) {
	address := conn.Conn().RemoteAddr()
	config = config.Copy()
	config.AfterConnect = nil
	config.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, address.Network(), address.String())
	}
	return pgconn.ConnectConfig(ctx, config)
}

// process returns the number of the server's process that answers, and whether the same one
// answers again.
func process(ctx context.Context, conn *pgconn.PgConn) (pid string, same bool, err error) {
	var pids [2]string
	for i := range pids {
		row, err := firstRow(ctx, conn, "SELECT "+processSQL)
		if err != nil {
			return "", false, err
		}
		pids[i] = string(row[0])
	}
	return pids[0], pids[0] == pids[1], nil
}
