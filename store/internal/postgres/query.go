package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Querier is a pool or a transaction.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Unprepared runs statements that rarely come again on the same connection. Neither the node nor
// Postgres keeps them, and each takes one round trip.
type Unprepared struct{ Q Querier }

func (u Unprepared) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return u.Q.Query(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

func (u Unprepared) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return u.Q.QueryRow(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
}

// OrZero returns the time, or the zero time for nil.
func OrZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}

// CountRows returns the number that a query counts.
func CountRows(ctx context.Context, db Querier, sql string, args ...any) (n int, err error) {
	err = db.QueryRow(ctx, sql, args...).Scan(&n)
	return n, Wrap(err, "countRows")
}

// Execer is a pool, a connection or a transaction.
type Execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// OrNull returns a pointer to v, or nil for the zero value.
func OrNull[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}

// DistributedSQL reports whether Citus distributed a schema of the database: then its table of
// schemas isn't empty. There is no such table in plain Postgres.
const DistributedSQL = `coalesce(pg_catalog.pg_relation_size(
	pg_catalog.to_regclass('pg_catalog.pg_dist_schema')) > 0, false)`

// QueueSettings sets settings for the rest of the transaction. Citus can't plan some statements for
// all parameters at once, so where tenants are distributed, the mode of plans stays as it is. A
// lock_timeout gets a statement of its own: only that is passed on to the workers.
func QueueSettings(b *pgx.Batch, settings map[string]string) {
	if limit, ok := settings["lock_timeout"]; ok {
		b.Queue(`SET LOCAL lock_timeout = '` + limit + `'`)
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(settings)),
		func(name string) bool { return name == "lock_timeout" })
	values := make([]string, len(names))
	for i, name := range names {
		values[i] = settings[name]
	}
	b.Queue(`SELECT set_config(name, value, true)
		FROM unnest($1::text[], $2::text[]) AS u (name, value)
		WHERE name <> 'plan_cache_mode' OR NOT `+DistributedSQL,
		names, values)
}

// SearchSettings plan a search, and the work on its findings, like the hot statements: the small
// tables are never analysed. A lock that the search can't get it tries again later.
var SearchSettings = merged(PinnedSettings, map[string]string{"lock_timeout": "2000"})

// Pin plans the rest of a transaction like the hot statements, whatever its connection. Postgres
// keeps a plan that it made for the same text without Pin, so a text is run with it or without it.
func Pin(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	QueueSettings(b, PinnedSettings)
	return tx.SendBatch(ctx, b).Close()
}
