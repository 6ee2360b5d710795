package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// A user that may make roles, and schemas in a database of another owner, needs no other right: not
// those of a superuser, of the owner, of pg_monitor, nor any in the schema public. A managed
// Postgres gives that much.
func TestNodeOfAUserWithTwoRights(t *testing.T) {
	t.Parallel()
	own := twoRights(t)
	runAll(t, nodeEnv(own), "migrate up", "tenants create "+testTenant, "migrate up",
		"migrate status")
	p := startNode(t, own, "--migrate")
	everyKindOfWork(t, p)
	env := map[string]string{"DATABASE_URL": own, "ASYNCFLOW_SECRET": testSecret,
		"ASYNCFLOW_JWT_SECRET": testJWTSecret}
	for _, job := range []string{"roll", "vacuum", "fold", "forget", "erase", "rescue"} {
		r := runCLI(t, env, "governance", "run", job)
		assert.Zero(t, r.code, "%s: %s%s", job, r.stdout, r.stderr)
	}
	r := runCLI(t, env, "doctor", "--all")
	assert.NotContains(t, r.stdout, "could not be checked")
	assert.Contains(t, r.stdout, "2 problems, 1 warning",
		"fsync, full_page_writes and synchronous_commit are off")
	runAll(t, nodeEnv(own), "tenants create second", "tenants delete second --now",
		"governance run drop-tenants")
	require.Eventually(t, func() bool {
		return ask[int](t, own, `SELECT (SELECT count(*) FROM pg_namespace
			WHERE nspname = 'tenant_second') + (SELECT count(*) FROM pg_roles
			WHERE rolname LIKE (SELECT base_role FROM asyncflow.fence) || '_second')`) == 0
	}, patience, 50*time.Millisecond, "the tenant and its role are gone")
	requireNothingElsewhere(t, own)
}

// twoRights returns the URL of an empty database for a user with CREATEROLE, and CREATE on the
// database.
func twoRights(t *testing.T) string {
	t.Helper()
	direct := pgtest.Database(t, nil)
	u, err := url.Parse(direct)
	require.NoError(t, err)
	admin, err := pgx.Connect(t.Context(), direct)
	require.NoError(t, err)
	user := fmt.Sprintf("login_%d", rand.Int64())
	database := pgx.Identifier{u.Path[1:]}.Sanitize()
	_, err = admin.Exec(t.Context(), fmt.Sprintf(`
		CREATE ROLE %[1]s LOGIN NOSUPERUSER NOCREATEDB NOREPLICATION NOBYPASSRLS CREATEROLE
		  PASSWORD 'secret';
		REVOKE ALL ON DATABASE %[2]s FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC;
		GRANT CONNECT, CREATE ON DATABASE %[2]s TO %[1]s`, user, database))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := admin.Exec(ctx, fmt.Sprintf(
			`REASSIGN OWNED BY %[1]s TO CURRENT_USER; DROP OWNED BY %[1]s; DROP ROLE %[1]s`, user))
		assert.NoError(t, err)
		assert.NoError(t, admin.Close(ctx))
	})
	u.User = url.UserPassword(user, "secret")
	return u.String()
}
