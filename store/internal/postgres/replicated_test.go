package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A warning about the standby is for the use of the connection that it came in. It is nothing to
// the next user, perhaps another tenant.
func TestAWarningIsForItsUserOnly(t *testing.T) {
	t.Parallel()
	pool, err := postgres.NewPool(t.Context(), postgres.PoolConfig{
		URL: pgtest.Database(t, nil), Size: 1, NoRoles: true,
		Statement: postgres.BaseStatement, Group: &postgres.PoolGroup{}})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	conn.Conn().PgConn().CustomData()["asyncflow: not replicated"] = true
	db := postgres.NewTenantDB(func(context.Context) (*pgxpool.Conn, func(), error) {
		return conn, func() {}, nil
	}, &postgres.Roles{}, "")
	_, err = db.Exec(t.Context(), `SELECT`)
	require.ErrorIs(t, err, postgres.ErrNotReplicated, "the warning has another name")

	conn, err = pool.Acquire(t.Context())
	require.NoError(t, err)
	conn.Conn().PgConn().CustomData()["asyncflow: not replicated"] = true
	conn.Release()
	conn, err = pool.Acquire(t.Context())
	require.NoError(t, err)
	_, err = db.Exec(t.Context(), `SELECT`)
	require.NoError(t, err)
}
