package schema

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/migrations"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Connections for administration and for migrations don't follow the server's settings: a commit is
// on disk, and neither a statement is cut off, nor a session that has a lock for another one.
func TestAdminConnectionsSetTheirSettings(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, nil)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	var database string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_database()`).Scan(&database))
	server := map[string]string{"synchronous_commit": "off", "statement_timeout": "7min",
		"lock_timeout": "7min", "idle_in_transaction_session_timeout": "7min",
		"client_min_messages": "error", "timezone": "Asia/Tokyo",
		"default_transaction_isolation": "repeatable read"}
	want := map[string]string{"synchronous_commit": "on", "statement_timeout": "0",
		"lock_timeout": "0", "idle_in_transaction_session_timeout": "0",
		"client_min_messages": "warning", "timezone": "UTC",
		"default_transaction_isolation": "read committed"}
	for name, value := range server {
		_, err := conn.Exec(t.Context(), `ALTER DATABASE `+postgres.Quote(database)+` SET `+name+
			` = '`+value+`'`)
		require.NoError(t, err)
	}

	admin, err := postgres.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	for name, value := range want {
		var got string
		err := admin.QueryRow(t.Context(), `SELECT current_setting($1)`, name).Scan(&got)
		require.NoError(t, err)
		require.Equal(t, value, got, name)
	}
	read := func(db *sql.DB, _ *goose.Provider) error {
		for name, value := range want {
			var got string
			err := db.QueryRowContext(t.Context(), `SELECT current_setting($1)`, name).Scan(&got)
			require.NoError(t, err)
			require.Equal(t, value, got, name)
		}
		return nil
	}
	err = withProvider(t.Context(), url, Base, migrations.Asyncflow(), "", byHand, read)
	require.NoError(t, err)
}
