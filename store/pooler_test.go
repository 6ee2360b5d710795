package store_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// A pooler in session mode takes no settings with the start of a connection, or drops them:
// everything works all the same, and nothing lands in another schema.
func TestThroughASessionPooler(t *testing.T) {
	t.Parallel()
	for name, drops := range map[string]bool{"refuses": false, "drops": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := pgtest.Database(t, nil)
			through := pooler{drops: drops, servers: 1}.listen(t, direct)
			require.NoError(t, prepare(t.Context(), through))
			b := open(t, through, "node-1")
			b.put(twoStages())
			b.submit(asyncflow.NewTask{Type: "pipe", Context: []byte("1")})
			require.Len(t, b.lease(b.known(), 1), 1)

			var elsewhere int
			require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM pg_class
				WHERE relnamespace = 'public'::regnamespace`).Scan(&elsewhere))
			assert.Zero(t, elsewhere)
		})
	}
}

// A pooler refuses a setting that the URL asks for. The error names both.
func TestPoolerRefusesASettingOfTheURL(t *testing.T) {
	t.Parallel()
	through := pooler{servers: 1}.listen(t, pgtest.Database(t, nil)+"&work_mem=8MB")
	_, err := store.Migrate(t.Context(), through)
	require.ErrorContains(t, err, "is a pooler and refuses a setting of DATABASE_URL or PGOPTIONS "+
		"(unsupported startup parameter: work_mem)")
	require.ErrorContains(t, err, "ignore_startup_parameters")
	_, err = store.Open(t.Context(), store.Config{URL: through, Node: "n"})
	require.ErrorContains(t, err, "unsupported startup parameter: work_mem")
}

// A pooler in transaction mode loses settings. The error says so, and nothing is written. (A real
// one is refused in cmd/asyncflow.)
func TestTransactionPoolerIsRefused(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t, nil)
	through := pooler{servers: 2}.listen(t, direct)
	const lost = "(transaction mode): settings of a connection, such as search_path, would be lost"
	_, err := store.Migrate(t.Context(), through)
	require.ErrorContains(t, err, lost)
	require.ErrorContains(t, err, "a pooler in session mode")
	_, err = store.Open(t.Context(), store.Config{URL: through, Node: "n"})
	require.ErrorContains(t, err, lost)

	db, err := pgxpool.New(t.Context(), direct)
	require.NoError(t, err)
	defer db.Close()
	var made int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM pg_class
		WHERE relnamespace = 'public'::regnamespace OR relnamespace::regnamespace::text = 'asyncflow'`).
		Scan(&made))
	assert.Zero(t, made)
}

// pooler treats the parameters at the start of a connection as PgBouncer does. Each transaction
// goes to the next of its servers' connections.
type pooler struct {
	drops   bool // parameters that it doesn't know; else it refuses them
	servers int
}

// poolerKnows are the parameters that PgBouncer knows.
var poolerKnows = []string{"user", "database", "client_encoding", "datestyle", "timezone",
	"standard_conforming_strings", "application_name"}

// listen returns the URL of a database through the pooler.
func (p pooler) listen(t *testing.T, direct string) string {
	t.Helper()
	u, err := url.Parse(direct)
	require.NoError(t, err)
	server := *u
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				p.serve(conn, &server)
			}()
		}
	}()
	u.Host = l.Addr().String()
	return u.String()
}

func (p pooler) serve(conn net.Conn, server *url.URL) {
	client := pgproto3.NewBackend(conn, conn)
	message, err := client.ReceiveStartupMessage()
	if err != nil {
		return
	}
	start, ok := message.(*pgproto3.StartupMessage)
	if !ok {
		return // it is no test of cancels
	}
	for name := range start.Parameters {
		switch {
		case slices.Contains(poolerKnows, name):
		case p.drops:
			delete(start.Parameters, name)
		default:
			client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01",
				Message: "unsupported startup parameter: " + name})
			_ = client.Flush()
			return
		}
	}
	if p.servers == 1 {
		session(conn, start, server.Host)
		return
	}
	var servers []*pgproto3.Frontend
	for range p.servers {
		own, err := pgconn.Connect(context.Background(), server.String())
		if err != nil {
			return
		}
		to, err := own.Hijack()
		if err != nil {
			return
		}
		defer to.Conn.Close()
		servers = append(servers, to.Frontend)
	}
	client.Send(&pgproto3.AuthenticationOk{})
	client.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if client.Flush() != nil {
		return
	}
	for i := 0; ; i = (i + 1) % len(servers) {
		if transaction(client, servers[i]) != nil {
			return
		}
	}
}

// session connects a client with a server.
func session(client net.Conn, start *pgproto3.StartupMessage, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	front := pgproto3.NewFrontend(server, server)
	front.Send(start)
	if front.Flush() != nil {
		return
	}
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	_, _ = io.Copy(client, server)
}

// transaction passes a transaction of simple queries, or of one batch, to a server.
func transaction(client *pgproto3.Backend, server *pgproto3.Frontend) error {
	for {
		message, err := client.Receive()
		if err != nil {
			return err
		}
		server.Send(message)
		switch message.(type) {
		case *pgproto3.Query, *pgproto3.Sync:
			return relay(server, client)
		case *pgproto3.Terminate:
			return io.EOF
		}
	}
}

// relay sends what is to be sent to the server, and passes on its answers until it is ready.
func relay(server *pgproto3.Frontend, client *pgproto3.Backend) error {
	if err := server.Flush(); err != nil {
		return err
	}
	for {
		message, err := server.Receive()
		if err != nil {
			return err
		}
		client.Send(message)
		switch message.(type) {
		case *pgproto3.ReadyForQuery:
			return client.Flush()
		case *pgproto3.ErrorResponse:
			if err := client.Flush(); err != nil {
				return err
			}
		}
	}
}
