package store_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// BenchmarkTenants gets and submits tasks of many tenants over 4 connections, with and
// without roles.
func BenchmarkTenants(b *testing.B) {
	for _, tenants := range []int{1, 50} {
		for _, off := range []bool{false, true} {
			b.Run(fmt.Sprintf("tenants=%d/roles=%t", tenants, !off),
				func(b *testing.B) { benchTenants(b, tenants, off) })
		}
	}
}

func benchTenants(b *testing.B, tenants int, off bool) {
	ctx := b.Context()
	url := pgtest.Database(b, nil)
	_, err := store.Migrate(ctx, url, store.WithoutRoles(off))
	require.NoError(b, err)
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("t%d", i)
		_, err := store.CreateTenant(ctx, url, names[i], store.WithoutRoles(off))
		require.NoError(b, err)
	}
	s, err := store.Open(ctx, store.Config{URL: url, Node: "bench", Pool: 4, HotPool: 4,
		NoRoles: off})
	require.NoError(b, err)
	defer s.Close()
	c := dispatcher.NewCommitter(s, nil)
	defer c.Close()
	ids := make([]asyncflow.TaskID, tenants)
	for i, name := range names {
		_, _, err := s.PutTaskType(ctx, name, twoStages())
		require.NoError(b, err)
		ids[i] = c.Submit(ctx, name, []asyncflow.NewTask{newTask(`1`)})[0].ID
	}
	for name, do := range map[string]func(i int) error{
		"get": func(i int) error { _, err := s.Task(ctx, names[i], ids[i]); return err },
		"submit": func(i int) error {
			return c.Submit(ctx, names[i],
				[]asyncflow.NewTask{newTask(`1`)})[0].Err
		},
		"lease": func(i int) error {
			t, err := s.Catalog.Type(names[i], "pipe")
			if err == nil {
				_, _, err = s.Lease(ctx, t, 1)
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			var n atomic.Int64
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := do(int(n.Add(1)) % tenants); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkTakeRole takes the roles of many tenants in turn, as a user that is no superuser, on a
// new connection and on one that took one before.
func BenchmarkTakeRole(b *testing.B) {
	for _, tenants := range []int{1, 100, 1000, 3000} {
		b.Run(fmt.Sprintf("tenants=%d", tenants), func(b *testing.B) {
			url, user, admin := login(b, "CREATEROLE")
			_, err := admin.Exec(b.Context(), fmt.Sprintf(`DO $$ BEGIN FOR i IN 1..%d LOOP
				EXECUTE format('CREATE ROLE %[2]s_%%s; GRANT %[2]s_%%s TO %[2]s', i,
				    i); END LOOP; END $$`, tenants, user))
			require.NoError(b, err)
			b.Cleanup(func() {
				_, err := admin.Exec(context.Background(), fmt.Sprintf(`DO $$ BEGIN
					FOR i IN 1..%d LOOP EXECUTE format('DROP ROLE %s_%%s', i); END LOOP; END $$`,
					tenants, user))
				require.NoError(b, err)
			})
			pool, err := pgxpool.New(b.Context(), url)
			require.NoError(b, err)
			defer pool.Close()
			take := func(i int) {
				_, err := pool.Exec(b.Context(), `SELECT set_config('role', $1, true)`,
					fmt.Sprintf("%s_%d", user, i%tenants+1))
				require.NoError(b, err)
			}
			b.Run("first", func(b *testing.B) {
				for i := range b.N {
					b.StopTimer()
					pool.Reset()
					require.NoError(b, pool.Ping(b.Context()))
					_, err := pool.Exec(b.Context(), `SELECT $1::text`, "prepared")
					require.NoError(b, err)
					b.StartTimer()
					take(i)
				}
			})
			b.Run("later", func(b *testing.B) {
				for i := range b.N {
					take(i)
				}
			})
		})
	}
}
