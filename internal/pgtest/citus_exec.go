package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// execer runs statements: a connection, or a pool.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// DB is a pool by which a test looks at a database from the side, and changes it.
type DB struct{ *pgxpool.Pool }

// Exec is as the function.
func (db DB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return Exec(ctx, db.Pool, db.Config().ConnString(), sql, args...)
}

// Exec runs statements by which a test changes the tables of a tenant. Citus refuses forms that
// Postgres takes, such as a time less an interval in an UPDATE, and writes wrong SQL for some. Then
// the statements are run at the worker of the tenant, on the tables that it has. address is that of
// the database of db.
func Exec(
	ctx context.Context, db execer, address, sql string, args ...any,
) (pgconn.CommandTag, error) {
	tag, err := db.Exec(ctx, sql, args...)
	schema := tenantSchema.FindStringSubmatch(sql)
	if err == nil || !OnCitus() || schema == nil {
		return tag, err
	}
	tag, there := execAtWorker(ctx, address, schema[1], sql, args)
	if there != nil {
		return tag, errors.Join(err, fmt.Errorf("at the worker: %w", there))
	}
	return tag, nil
}

var tenantSchema = regexp.MustCompile(`\b(tenant_[a-z0-9_]+)"?\.`)

// execAtWorker runs statements on the tables that the worker of a tenant has.
func execAtWorker(
	ctx context.Context, address, schema, sql string, args []any,
) (tag pgconn.CommandTag, err error) {
	conn, names, err := connectToWorker(ctx, address, schema)
	if err != nil {
		return tag, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	// What is made there, such as a trigger, is for the worker alone.
	if _, err = conn.Exec(ctx, `SET citus.enable_ddl_propagation = off`); err != nil {
		return tag, err
	}
	return conn.Exec(ctx, nameAtWorker(schema, names, sql), args...)
}

// Hold keeps what statements lock of a tenant until end is called, or the test ends. With Citus it
// locks the tables that the tenant's worker has: a lock of those that Citus shows stops nobody who
// goes straight there.
func Hold(t testing.TB, address string, statements ...string) (end func()) {
	t.Helper()
	conn, schema, names, err := connectToHold(t.Context(), address, statements[0])
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	end = sync.OnceFunc(func() {
		_, _ = conn.Exec(context.Background(), `ROLLBACK`) // the lock is gone when end returns
		_ = conn.Close(context.Background())
	})
	t.Cleanup(end)
	for _, sql := range append([]string{`BEGIN`}, statements...) {
		if _, err := conn.Exec(t.Context(), nameAtWorker(schema, names, sql)); err != nil {
			t.Fatalf("pgtest: %s: %v", sql, err)
		}
	}
	return end
}

// connectToHold connects to where the tables are that a statement names.
func connectToHold(
	ctx context.Context, address, sql string,
) (conn *pgx.Conn, schema string, names map[string]string, err error) {
	if found := tenantSchema.FindStringSubmatch(sql); OnCitus() && found != nil {
		conn, names, err = connectToWorker(ctx, address, found[1])
		return conn, found[1], names, err
	}
	conn, err = pgx.Connect(ctx, address)
	return conn, "", nil, err
}

// nameAtWorker makes a statement name the tables that the worker of a tenant has.
func nameAtWorker(schema string, names map[string]string, sql string) string {
	if len(names) == 0 {
		return sql
	}
	named := regexp.MustCompile(`"?\b` + schema + `"?\.("[^"]+"|[a-z_][a-z0-9_]*)`)
	return named.ReplaceAllStringFunc(sql, func(found string) string {
		_, table, _ := strings.Cut(found, ".")
		if name, ok := names[strings.Trim(table, `"`)]; ok {
			return name
		}
		return found
	})
}

// connectToWorker connects to the worker of a tenant, and returns the names that the tenant's
// tables have there.
func connectToWorker(
	ctx context.Context, address, schema string,
) (worker *pgx.Conn, names map[string]string, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	u, err := url.Parse(address)
	if err != nil {
		return nil, nil, err
	}
	rows, _ := conn.Query(ctx, `SELECT nodename || ':' || nodeport, c.relname::text,
			shard_name(c.oid, s.shardid)
		FROM pg_class c JOIN pg_dist_shard s ON s.logicalrelid = c.oid
			JOIN pg_dist_placement USING (shardid) JOIN pg_dist_node USING (groupid)
		WHERE c.relnamespace = $1::text::regnamespace`, schema)
	var table, name string
	names = map[string]string{}
	if _, err = pgx.ForEachRow(rows, []any{&u.Host, &table, &name}, func() error {
		names[table] = name
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if len(names) > 0 { // otherwise the tenant is at the coordinator
		q := u.Query()
		q.Set("citus.enable_manual_changes_to_shards", "on")
		u.RawQuery = q.Encode()
	}
	worker, err = pgx.Connect(ctx, u.String())
	return worker, names, err
}
