package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// prepareds are the kinds of poolers by prepared statements: max_prepared_statements by name.
var prepareds = map[string]int{"unprepared": 0, "prepared": 100}

// openPooled opens a node's store with a PgBouncer in transaction mode for pooled connections, and
// returns the URL through that.
func openPooled(t *testing.T, servers, prepared int) (b *bundle, through string) {
	t.Helper()
	return openPooledOn(t, pgtest.Database(t, prepareTwo), servers, prepared, pgtest.NoRoles())
}

func openPooledOn(
	t *testing.T, direct string, servers, prepared int, noRoles bool,
) (b *bundle, through string) {
	t.Helper()
	// Settings that only connections without asyncflow's use must not matter.
	owner, err := pgx.Connect(t.Context(), direct)
	require.NoError(t, err)
	database := pgx.Identifier{owner.Config().Database}.Sanitize()
	for _, setting := range []string{`timezone = 'Asia/Tokyo'`, `datestyle = 'SQL, DMY'`} {
		_, err := owner.Exec(t.Context(), `ALTER DATABASE `+database+` SET `+setting)
		require.NoError(t, err)
	}
	require.NoError(t, owner.Close(t.Context()))
	through = pgtest.PgBouncer{Mode: "transaction", Servers: servers, Prepared: prepared}.
		Listen(t, direct)
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{URL: direct, PooledURL: through, Node: "node-1",
			Notify: true, Pool: 4, HotPool: 4, NoRoles: noRoles,
			Log: slog.New(slog.DiscardHandler)})
	})
	return keepRunning(t, s, direct), through
}

// Two tenants and a stranger share the one connection of a pooler to the server: each statement
// runs under the role of its own tenant, and nobody else sees a role, a setting or a prepared
// statement of theirs.
func TestPooledConnectionsLeakNothing(t *testing.T) {
	needsRoles(t)
	t.Parallel()
	for name, prepared := range prepareds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, through := openPooled(t, 1, prepared)
			roles := map[string]string{}
			for _, name := range []string{tenant, "other"} {
				var err error
				roles[name], err = b.RoleOf(t.Context(), name)
				require.NoError(t, err)
				b.putOf(name, twoStages())
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var wg sync.WaitGroup
			for name, role := range roles {
				wg.Go(func() {
					for range longform.Size(10, 100) {
						for kind, run := range b.Roles(ctx, name, "") {
							got, err := run()
							assert.NoError(t, err, kind)
							assert.Equal(t, role, got, "%s of %s", kind, name)
						}
						for _, run := range b.Roles(ctx, name, `SELECT 1 / 0`) {
							_, _ = run() // it fails within the transaction
						}
					}
				})
				wg.Go(func() {
					for i := range longform.Size(10, 100) {
						got := b.Committer.Submit(ctx, name,
							[]asyncflow.NewTask{newTask(fmt.Sprint(i))})
						assert.NoError(t, got[0].Err)
						_, err := b.Stats(ctx, name, "")
						assert.NoError(t, err)
					}
				})
			}
			wg.Go(func() { stranger(ctx, t, through, longform.Size(200, 2000)) })
			waitAll(t, &wg)
		})
	}
}

// stranger is another client of a pooler, which must find a connection as the server makes it.
func stranger(ctx context.Context, t *testing.T, through string, n int) {
	conn, err := pgx.Connect(ctx, through)
	if !assert.NoError(t, err) {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for range n {
		var same, none bool
		var kept string
		err := conn.QueryRow(ctx, `SELECT current_user = session_user, `+
			`coalesce((SELECT string_agg(name || ' ' || setting, ', ') FROM pg_settings `+
			`WHERE source = 'session' AND name NOT IN ('client_encoding', 'DateStyle', `+
			`'IntervalStyle', 'TimeZone', 'standard_conforming_strings', 'application_name')), ''), `+
			`NOT EXISTS (SELECT FROM pg_prepared_statements WHERE name LIKE 'stmtcache%' `+
			`OR name LIKE 'asyncflow%')`, pgx.QueryExecModeSimpleProtocol).Scan(&same, &kept, &none)
		if !assert.NoError(t, err) || !assert.True(t, same, "another role") ||
			!assert.Empty(t, kept) || !assert.True(t, none, "a prepared statement of a client") {
			return
		}
	}
}

// A task goes through all its stages over pooled connections: arrays, JSON and labels arrive as
// they were sent, prepared or not.
func TestPooledTask(t *testing.T) {
	t.Parallel()
	for name, prepared := range prepareds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := openPooled(t, 3, prepared)
			pipe := b.put(twoStages())
			odd := `{"text":"ä\"'\\ \u0001","list":[1,null,[{}]]}`
			task := newTask(`1`)
			task.Options.Labels = asyncflow.Labels{User: "ada", Tags: []string{"eu", "fr"},
				Metadata: map[string]string{"order": "4711"}}
			for range 8 { // later ones use what was prepared or described
				b.submit(task, task)
			}
			leases := b.lease(pipe, 16)
			require.Len(t, leases, 16)
			for _, l := range leases {
				b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
					Output: json.RawMessage(odd)})
			}
			second := b.lease(pipe, 16)
			require.Len(t, second, 16)
			assert.Equal(t, odd, string(second[0].Context))
			listed, err := b.Task(t.Context(), tenant, leases[0].ID)
			require.NoError(t, err)
			assert.Equal(t, task.Options.Labels, listed.Options.Labels)
		})
	}
}

// The plans of the hot statements are pinned on pooled connections too, and what other pooled
// connections keep doesn't change them.
func TestPooledSettings(t *testing.T) {
	t.Parallel()
	for name, prepared := range prepareds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := openPooled(t, 1, prepared)
			read := func(hot bool) map[string]string {
				t.Helper()
				db := b.DBOf(tenant, hot)
				rows, _ := db.Query(t.Context(), `SELECT name, setting FROM pg_settings`)
				all := map[string]string{}
				var name, setting string
				_, err := pgx.ForEachRow(rows, []any{&name, &setting}, func() error {
					all[name] = setting
					return nil
				})
				require.NoError(t, err)
				return all
			}
			for _, hot := range []bool{true, false, true} {
				all := read(hot)
				assert.Equal(t, "pg_catalog, pg_temp", all["search_path"])
				assert.Equal(t, "UTC", all["TimeZone"])
				assert.Equal(t, "5000", all["idle_in_transaction_session_timeout"])
				assert.Equal(t, "30000", all["statement_timeout"])
				for name, want := range store.HotSettings {
					if hot {
						assert.Equal(t, want, all[name], name)
					}
				}
				if !hot {
					assert.Equal(t, "on", all["enable_seqscan"])
					assert.Equal(t, "force_custom_plan", all["plan_cache_mode"])
				}
			}
		})
	}
}

// Without database roles, pooled connections get their settings all the same.
func TestPooledWithoutRoles(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t, nil)
	_, err := store.Migrate(t.Context(), direct, store.WithoutRoles(true))
	require.NoError(t, err)
	_, err = store.CreateTenant(t.Context(), direct, tenant, store.WithoutRoles(true))
	require.NoError(t, err)
	b, through := openPooledOn(t, direct, 1, 0, true)
	pipe := b.put(twoStages())
	b.submit(newTask(`1`))
	require.Len(t, b.lease(pipe, 1), 1)
	for _, hot := range []bool{true, false} {
		var path string
		require.NoError(t, b.DBOf(tenant, hot).QueryRow(t.Context(),
			`SELECT current_setting('search_path')`).Scan(&path))
		assert.Equal(t, "pg_catalog, pg_temp", path)
	}
	stranger(t.Context(), t, through, 3)
}

// A pooled URL that leads to another database is refused, and one that leads nowhere names the
// address.
func TestPooledURLOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	direct, other := pgtest.Database(t, prepare), pgtest.Database(t, prepare)
	_, err := store.Open(t.Context(), store.Config{URL: direct, PooledURL: other, Node: "n"})
	require.ErrorContains(t, err, "the pooled URL leads to another database than DATABASE_URL")
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
	u, err := url.Parse(direct)
	require.NoError(t, err)
	u.Host = "127.0.0.1:1"
	_, err = store.Open(t.Context(), store.Config{URL: direct, PooledURL: u.String(), Node: "n"})
	require.ErrorContains(t, err, "127.0.0.1:1")
}
