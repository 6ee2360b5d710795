package pgtest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var prepared atomic.Int64

func prepare(ctx context.Context, url string) error {
	prepared.Add(1)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	role := fmt.Sprintf("asyncflow_%08x_acme", rand.Uint32()) // as of a tenant
	_, err = conn.Exec(ctx, "CREATE ROLE "+role+
		"; CREATE TABLE note (text text PRIMARY KEY); GRANT SELECT ON note TO "+role)
	return err
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgtest.Database(t, prepare))

			_, err := conn.Exec(t.Context(), "INSERT INTO note VALUES ('same key in each')")

			require.NoError(t, err, "the table is there and nobody else's row is")
			require.EqualValues(t, 1, prepared.Load(), "one template for all")
		})
	}
}

func TestDatabaseOfNilIsEmpty(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Database(t, nil))

	var tables int
	require.NoError(t, conn.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").Scan(&tables))
	require.Zero(t, tables)
}

func TestDatabaseIsDroppedAfterTheTest(t *testing.T) {
	t.Parallel()
	var url string
	var conn *pgx.Conn
	t.Run("inner", func(t *testing.T) {
		url = pgtest.Database(t, prepare)
		var err error
		conn, err = pgx.Connect(t.Context(), url)
		require.NoError(t, err)
	})

	require.Error(t, conn.Ping(t.Context()), "a connection left open is cut")
	_, err := pgx.Connect(t.Context(), url)
	require.ErrorContains(t, err, "does not exist")
}
