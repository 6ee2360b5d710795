package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// unprepared runs statements that rarely come again on the same connection. Neither the node nor
// Postgres keeps them, and each takes one round trip.
type unprepared struct{ q querier }

func (u unprepared) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return u.q.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

func (u unprepared) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return u.q.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

func countRows(ctx context.Context, db querier, sql string, args ...any) (n int, err error) {
	err = db.QueryRow(ctx, sql, args...).Scan(&n)
	return n, wrap(err, "countRows")
}

// execer is a pool, a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}
