package postgres_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// probed is a pool with a prober. Its own deadlines are too long to help.
type probed struct {
	*pgxpool.Pool
	*postgres.Prober
}

func startProber(t *testing.T, url string) probed {
	t.Helper()
	group := &postgres.PoolGroup{}
	pool, err := postgres.NewPool(t.Context(), postgres.PoolConfig{URL: url, Size: 2, NoRoles: true,
		Statement: time.Hour, Group: group})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	p, err := postgres.NewProber(t.Context(), url, pool, group)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	return probed{pool, p}
}

// hang runs a statement that takes for ever, and returns its end.
func (p probed) hang(t *testing.T) <-chan error {
	t.Helper()
	conn, err := p.Acquire(t.Context())
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		defer conn.Release()
		_, err := conn.Exec(context.WithoutCancel(t.Context()), `SET statement_timeout = 0;
			SELECT pg_sleep(3600)`, pgx.QueryExecModeSimpleProtocol)
		ended <- err
	}()
	return ended
}

func (p probed) server(t *testing.T) (port int) {
	t.Helper()
	require.NoError(t, p.QueryRow(t.Context(), `SELECT current_setting('port')::int`).Scan(&port))
	return port
}

// Once another server is found, nothing waits for the lost one, not even a statement under way.
func TestProberFindsTheNextServer(t *testing.T) {
	t.Parallel()
	lost, next := pgtest.Server(t, devpg.Config{}), pgtest.Server(t, devpg.Config{})
	for name, bothKnown := range map[string]bool{"the address moves": false, "two hosts": true} {
		t.Run(name, func(t *testing.T) {
			network, address := pgtest.Behind(t, lost.URL("postgres"))
			u, err := url.Parse(next.URL("postgres"))
			require.NoError(t, err)
			if bothKnown {
				address = withHost(t, address, u.Host)
			}
			p := startProber(t, address)
			require.Equal(t, lost.Config().Port, p.server(t))
			statement, era := p.hang(t), p.Era()
			network.Silence()
			require.NoError(t, era.Err(), "it is the same server so far")
			if !bothKnown {
				network.Lead(next.URL("postgres"))
				network.Heal()
			}
			select {
			case err := <-statement:
				require.Error(t, err)
			case <-time.After(patience):
				t.Fatal("the statement waits for the lost server")
			}
			<-era.Done()
			require.Eventually(t, func() bool { return p.Era().Err() == nil }, patience,
				time.Millisecond, "another era has begun")
			assert.Equal(t, next.Config().Port, p.server(t))
		})
	}
}

// withHost adds a host to a URL. Both servers know the user by the same password.
func withHost(t *testing.T, address, host string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	u.Host += "," + host
	return u.String()
}

// A statement that takes long is no sign of a lost server, as long as that is found where it was.
func TestProberLeavesLongStatements(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	p := startProber(t, server.URL("postgres"))
	era := p.Era()
	ended := p.hang(t)
	require.Eventually(t, func() bool { // some connections later
		var n int
		err := p.QueryRow(t.Context(), `SELECT sum(sessions) FROM pg_stat_database`).Scan(&n)
		return err == nil && n > 4
	}, patience, 20*time.Millisecond, "the prober has looked")
	select {
	case err := <-ended:
		t.Fatalf("the statement was broken: %v", err)
	default:
	}
	assert.NoError(t, era.Err())
	require.Eventually(t, func() bool {
		_, err := p.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()`)
		return err == nil
	}, patience, 20*time.Millisecond)
	require.Error(t, <-ended)
}

// Connections try the host first where the server was found last.
func TestHostsInOrder(t *testing.T) {
	t.Parallel()
	for first, want := range map[string][]string{
		"":       {"a:1", "b:2", "c:3"},
		"a:1":    {"a:1", "b:2", "c:3"},
		"b:2":    {"b:2", "a:1", "c:3"},
		"c:3":    {"c:3", "a:1", "b:2"},
		"gone:4": {"a:1", "b:2", "c:3"},
	} {
		cfg, err := pgx.ParseConfig("postgres://u@a:1,b:2,c:3/db?sslmode=disable")
		require.NoError(t, err)
		require.NoError(t, postgres.OrderHosts(first, cfg))
		got := []string{net.JoinHostPort(cfg.Host, postgres.Port(cfg.Port))}
		for _, f := range cfg.Fallbacks {
			got = append(got, net.JoinHostPort(f.Host, postgres.Port(f.Port)))
		}
		assert.Equal(t, want, got, first)
	}
}

// A host is asked once, with TLS if the server has it, however many ways to it a URL allows.
func TestProberPrefersTLS(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	u, err := url.Parse(server.URL("postgres"))
	require.NoError(t, err)
	u.RawQuery = "" // sslmode=prefer
	hosts, err := postgres.ProbedHosts(withHost(t, u.String(), "other:1"))
	require.NoError(t, err)
	require.Len(t, hosts, 2)
	assert.Equal(t, []string{u.Hostname(), "other"}, []string{hosts[0].Host, hosts[1].Host})
	for _, host := range hosts {
		require.Len(t, host.Fallbacks, 1)
		assert.NotNil(t, host.TLSConfig)
		assert.Nil(t, host.Fallbacks[0].TLSConfig)
		assert.Equal(t, host.Host, host.Fallbacks[0].Host)
	}

	conn, err := pgx.ConnectConfig(t.Context(), hosts[0])
	require.NoError(t, err, "without TLS")
	defer conn.Close(context.WithoutCancel(t.Context()))
	assert.IsType(t, &net.TCPConn{}, conn.PgConn().Conn())
	startTLS(t, conn)
	require.Eventually(t, func() bool {
		conn, err := pgx.ConnectConfig(t.Context(), hosts[0])
		if err != nil {
			return false
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		_, ok := conn.PgConn().Conn().(*tls.Conn)
		return ok
	}, patience, 20*time.Millisecond, "the server has TLS now")
}

// startTLS gives a server a certificate.
func startTLS(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, b := range map[string]*pem.Block{
		"server.crt": {Type: "CERTIFICATE", Bytes: der},
		"server.key": {Type: "PRIVATE KEY", Bytes: secret},
	} { // as the server's user, into its directory
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`
			COPY (SELECT unnest(string_to_array('%s', E'\n'))) TO PROGRAM 'umask 077; cat >%s'`,
			strings.TrimSpace(string(pem.EncodeToMemory(b))), name))
		require.NoError(t, err)
	}
	for _, sql := range []string{`ALTER SYSTEM SET ssl = on`, `SELECT pg_reload_conf()`} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}
