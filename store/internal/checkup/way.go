package checkup

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// pooler finds out whether something stands between this machine and the server. A pooler gives its
// clients numbers of processes that the server doesn't have. (Through one in transaction mode there
// is no connection: see postgres.Connect.) It also looks at the way of pooled connections.
func (c *checkup) pooler(ctx context.Context, f *findings) error {
	if c.pooled != "" {
		p, err := postgres.OpenPooler(ctx, c.pooled, c.conn, nil, c.noRoles)
		switch {
		case err != nil:
			f.add(LevelProblem, "let ASYNCFLOW_POOLED_URL lead to the database of DATABASE_URL, "+
				"through a pooler in transaction or session mode", "the way of pooled connections: %s",
				postgres.ConnectError(c.pooled, err))
		case !p.Prepared:
			f.add(LevelWarning, "PgBouncer 1.21 or newer, with max_prepared_statements above 0",
				"the pooler of pooled connections keeps no prepared statements: each transaction "+
					"parses and plans its statements anew")
		}
	}
	var pid uint32
	if err := c.conn.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		return err
	}
	if pid != c.conn.PgConn().PID() {
		f.add(LevelNote, "let it have at least as many connections as all nodes together",
			"a pooler in session mode stands before the server")
	}
	return nil
}

// notifyTime is how long a NOTIFY may take.
const notifyTime = 5 * time.Second

// notify sends a NOTIFY to itself over another connection.
func (c *checkup) notify(ctx context.Context, f *findings) error {
	other, err := postgres.Connect(ctx, c.url)
	if err != nil {
		return err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	channel := "asyncflow_doctor_" + uuid.NewString()[:8]
	if _, err := other.Exec(ctx, `LISTEN "`+channel+`"`); err != nil {
		return err
	}
	if _, err := c.conn.Exec(ctx, `SELECT pg_notify($1, '')`, channel); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, notifyTime)
	defer cancel()
	_, err = other.WaitForNotification(waiting)
	if errors.Is(err, context.DeadlineExceeded) {
		f.add(LevelWarning, "connect directly, or through a pooler in session mode",
			"a NOTIFY didn't arrive within %s: nodes find new tasks only when they look for them",
			notifyTime)
		return nil
	}
	return err
}
