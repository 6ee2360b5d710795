package store_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

func TestWakeupsReachOtherNodes(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	woken := make(chan store.TypeKey, 100)
	far := openWith(t, b.url, "node-2", func(s *store.Store) {
		listen(t, s, func(k store.TypeKey, _ time.Time) { woken <- k },
			func() { woken <- store.TypeKey{} })
	})
	_ = far
	require.Equal(t, store.TypeKey{}, <-woken,
		"a new LISTEN connection reports possibly lost announcements")
	b.submit(newTask(`1`))
	select {
	case k := <-woken:
		assert.Equal(t, store.TypeKey{Tenant: tenant, Type: "pipe"}, k)
	case <-time.After(patience):
		t.Fatal("no wake-up came")
	}
}

// A node without LISTEN starts over, too, when the server is another one.
func TestNodesWithoutListenFollowTheServer(t *testing.T) {
	t.Parallel()
	server := pgtest.PreparedServer(t, prepare)
	s := pgtest.Insist(t, func() (*store.Store, error) {
		return store.Open(t.Context(), store.Config{URL: server.URL("postgres"), Node: "node-1",
			Log: slog.New(slog.DiscardHandler)})
	})
	lost := make(chan struct{}, 100)
	listen(t, s, func(store.TypeKey, time.Time) {}, func() { lost <- struct{}{} })
	b := keepRunning(t, s, server.URL("postgres"))
	await := func(why string) {
		t.Helper()
		select {
		case <-lost:
		case <-time.After(patience):
			t.Fatal(why)
		}
	}
	await("it doesn't start over when it begins")
	require.False(t, b.Listening())
	before := b.Wakeups.Losses()
	require.NoError(t, server.Kill())
	pgtest.Server(t, server.Config())
	await("it doesn't start over with another server")
	assert.Greater(t, b.Wakeups.Losses(), before)
}

// announce announces a type as a third node would.
func (b *bundle) announce(t *store.Type, micros int64) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), fill(t, 1,
		`SELECT pg_notify('asyncflow_wake', format('7 %s {number} %s', 'tenant_acme'::regnamespace::oid, $1::bigint))`),
		micros)
	require.NoError(b.t, err)
}

// Any role of the database can send notifications. What they name is dropped unless it is a known
// type, so that nothing is kept of it.
func TestMadeUpAnnouncementsAreDropped(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	woken, listening := make(chan store.TypeKey, 1), make(chan struct{}, 1)
	_ = openWith(t, b.url, "node-2", func(s *store.Store) {
		listen(t, s, func(k store.TypeKey, _ time.Time) {
			select {
			case woken <- k:
			default: // the first one counts
			}
		}, func() { listening <- struct{}{} })
	})
	<-listening
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "node-3 acme made-up-%d 1\n7 %d %d 1\n", i, i, i)
	}
	lines.WriteString("\n0\n0 x\nsql acme\n7 -1 1 1\n7 1 99999999999999999999 1\n1 2 3 4 5\n")
	for range 20 {
		_, err := b.db.Exec(t.Context(), `SELECT pg_notify('asyncflow_wake', $1),
			pg_notify('asyncflow_wake', format('7 %s 999999 1', 'tenant_acme'::regnamespace::oid)),
			pg_notify('asyncflow_config', 'made-up'), pg_notify('asyncflow_config', '999999')`,
			lines.String())
		require.NoError(t, err)
	}
	b.announce(pipe, 1)
	select {
	case k := <-woken:
		assert.Equal(t, store.TypeKey{Tenant: tenant, Type: "pipe"}, k, "the true one is the first")
	case <-time.After(patience):
		t.Fatal("no wake-up came")
	}
}

// Any role of the database can listen. It learns no name.
func TestAnnouncementsNameNothing(t *testing.T) {
	b := setup(t)
	conn, err := pgx.Connect(t.Context(), b.url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), `LISTEN asyncflow_wake; LISTEN asyncflow_config`)
	require.NoError(t, err)
	heard := func(channel string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			n, err := conn.WaitForNotification(ctx)
			require.NoError(t, err, channel)
			require.Regexp(t, `^[0-9 \n]+$`, n.Payload)
			if n.Channel == channel {
				return
			}
		}
	}
	b.put(twoStages())
	heard("asyncflow_config")
	b.submit(newTask(`1`))
	heard("asyncflow_wake")
	for _, options := range []string{"", `, depends_on => '[{"type": "pipe", "key": "k"}]'`} {
		_, err = b.bySQL(b.app(), `'pipe', '1'`+options)
		require.NoError(t, err)
		heard("asyncflow_wake")
	}
}
