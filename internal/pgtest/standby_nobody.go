package pgtest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// SetStandby makes the commits on a server wait for a standby of a name, which needn't exist, and
// returns once they do; "": for none, which ends all waits. admin is a pool to the server; its own
// commits don't wait.
func SetStandby(t testing.TB, admin *pgxpool.Pool, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), adminTimeout)
	defer cancel()
	for _, sql := range []string{
		`ALTER SYSTEM SET synchronous_standby_names = '` + name + `'`, `SELECT pg_reload_conf()`} {
		if _, err := admin.Exec(ctx, sql); err != nil {
			t.Fatalf("pgtest: %s: %v", sql, err)
		}
	}
	if name == "" {
		return
	}
	if err := untilCommitsWait(ctx, admin); err != nil {
		t.Fatalf("pgtest: commits don't wait for the standby %s: %v", name, err)
	}
}

// untilCommitsWait commits until a commit waits for a standby, and cancels that wait.
func untilCommitsWait(ctx context.Context, admin *pgxpool.Pool) error {
	conn, err := pgx.Connect(ctx, admin.Config().ConnString())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err = conn.Exec(ctx, `SET synchronous_commit = on`); err != nil {
		return err
	}
	var waited atomic.Bool
	var failed error
	var committing sync.WaitGroup
	committing.Go(func() {
		for !waited.Load() && failed == nil {
			_, failed = conn.Exec(ctx, `SELECT pg_logical_emit_message(true, 'test', '')`)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for err == nil && !waited.Load() && ctx.Err() == nil {
		<-tick.C
		var waits bool
		err = admin.QueryRow(ctx, `SELECT count(*) > 0 FROM pg_stat_activity
			WHERE wait_event = 'SyncRep' AND pid = $1`, conn.PgConn().PID()).Scan(&waits)
		waited.Store(waits)
	}
	waited.Store(true)
	_, _ = admin.Exec(ctx, `SELECT pg_cancel_backend($1)`, conn.PgConn().PID())
	committing.Wait()
	for _, err := range []error{err, failed, ctx.Err()} {
		if err != nil {
			return err
		}
	}
	return nil
}
