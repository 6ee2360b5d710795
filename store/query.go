package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
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

// orNull returns a pointer to v, or nil for the zero value.
func orNull[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}

// queueSettings sets settings for the rest of the transaction.
func queueSettings(b *pgx.Batch, settings map[string]string) {
	names := slices.Sorted(maps.Keys(settings))
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = settings[name]
	}
	b.Queue(`SELECT set_config(name, value, true)
		FROM unnest($1::text[], $2::text[]) AS u (name, value)`, names, values)
}

// searchSettings plan a search, and the work on its findings, like the hot statements: the
// small tables are never analysed. A lock that the search can't have it tries again later.
var searchSettings = func() map[string]string {
	all := maps.Clone(postgres.HotSettings)
	all["lock_timeout"] = "2000"
	return all
}()
