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
	sessions := func() (n int) {
		require.NoError(t, p.QueryRow(t.Context(),
			`SELECT sum(sessions) FROM pg_stat_database`).Scan(&n))
		return n
	}
	// The server is a copy of one that had sessions, and one may be that of the question.
	before := sessions()
	require.Eventually(t, func() bool { return sessions() > before+1 }, patience,
		20*time.Millisecond, "the prober has looked")
	select {
	case err := <-ended:
		t.Fatalf("the statement was broken: %v", err)
	default:
	}
	assert.NoError(t, era.Err())
	var broken error
	require.Eventually(t, func() bool {
		_, _ = p.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE query LIKE '%pg_sleep%' AND pid <> pg_backend_pid()`)
		select {
		case broken = <-ended:
			return true
		default:
			return false
		}
	}, patience, 20*time.Millisecond)
	require.Error(t, broken)
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

// LISTEN, too, tries the host first where the server was found last.
func TestListenWhereTheServerWasFound(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	_, address := pgtest.Behind(t, server.URL("postgres"))
	u, err := url.Parse(server.URL("postgres"))
	require.NoError(t, err)
	cfg, err := pgx.ParseConfig(withHost(t, address, u.Host))
	require.NoError(t, err)
	conn, err := postgres.FoundAt(u.Host).ConnectToListen(t.Context(), cfg)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	assert.Equal(t, u.Host, conn.PgConn().Conn().RemoteAddr().String())
}

// A host is asked once, with TLS if the server offers it, however many ways to it a URL allows.
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

// A search that lasts makes fewer connections with time. After a while of quiet the next one is as
// quick as ever.
func TestProberBacksOff(t *testing.T) {
	t.Parallel()
	const step = 200 * time.Millisecond
	p, now := new(postgres.Prober), time.Now()
	probes := func(during time.Duration) (n int) {
		for end := now.Add(during); now.Before(end); now = now.Add(step) {
			if p.Due(now) {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 20, probes(4*time.Second), "all")
	assert.InDelta(t, 27, probes(16*time.Second), 4, "up to a second apart")
	probes(time.Minute)
	assert.InDelta(t, 100, probes(5*time.Minute), 7, "three seconds apart")
	now = now.Add(10 * time.Second)
	assert.Equal(t, 20, probes(4*time.Second), "it begins anew")
}

// A probe that gets no connection because all of them are in the pool leads to no further ones.
func TestProberWithoutAConnection(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Config{})
	admin, err := postgres.Connect(t.Context(), server.URL("postgres"))
	require.NoError(t, err)
	defer admin.Close(context.WithoutCancel(t.Context()))
	_, err = admin.Exec(t.Context(), `CREATE ROLE bounded LOGIN PASSWORD 'b' CONNECTION LIMIT 1`)
	require.NoError(t, err)
	u, err := url.Parse(server.URL("postgres"))
	require.NoError(t, err)
	u.User = url.UserPassword("bounded", "b")

	group := &postgres.PoolGroup{}
	pool, err := postgres.NewPool(t.Context(), postgres.PoolConfig{URL: u.String(), Size: 1,
		NoRoles: true, Statement: patience, Group: group})
	require.NoError(t, err)
	defer pool.Close()
	p, err := postgres.NewProber(t.Context(), u.String(), pool, group)
	require.NoError(t, err)
	used, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer used.Release() // before Close, which waits for it
	group.Reset()        // as after a failure
	require.Eventually(t, func() bool {
		p.Probe(t.Context())
		return !p.Due(time.Now())
	}, patience, time.Millisecond, "the server is there")
	require.True(t, group.Suspicious(), "the pool has opened no connection since")
	assert.True(t, p.Due(time.Now().Add(time.Minute)))

	used.Release() // which closes it
	require.Eventually(t, func() bool { return pool.Ping(t.Context()) == nil }, patience,
		20*time.Millisecond)
	p.Probe(t.Context())
	assert.False(t, group.Suspicious(), "the pool reaches the server")
}

// Of two servers that take writes, as after an old primary came back, the present one stays. One
// that it replaced comes last.
func TestProberStaysWithItsServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wait    time.Duration
		hosts   int
		servers []string
		want    string
	}{
		"the other one is quicker":      {patience, 2, []string{"old", "present"}, "present"},
		"the present one answers alone": {patience, 3, []string{"present"}, "present"},
		"the present one is lost":       {patience, 2, []string{"", "next"}, "next"},
		"the present one is silent":     {0, 2, []string{"next"}, "next"},
		"there is none":                 {0, 2, []string{"", ""}, ""},
		"the old primary is quicker":    {0, 2, []string{"old@1", "present@2"}, "present"},
		"a later one was promoted":      {0, 3, []string{"old@1", "", "next@3"}, "next"},
		"the later one is quicker":      {patience, 3, []string{"next@3", "old@1", ""}, "next"},
		"both are later":                {patience, 3, []string{"next@3", "last@4", ""}, "last"},
		"only the old one is there":     {0, 2, []string{"old@1", ""}, "old"},
		"the present one is full":       {0, 2, []string{"full", "old@1"}, "old, full"},
		"it says so later":              {0, 2, []string{"old@1", "full"}, "old, full"},
		"no other one answers":          {0, 2, []string{"full", ""}, ", full"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, postgres.Choose("present@2", c.wait, c.hosts, c.servers...))
		})
	}
}

// The prober of hot connections to a server of their own finds it lost, and back.
func TestProberOfHotConnections(t *testing.T) {
	t.Parallel()
	elsewhere := pgtest.Database(t, nil)
	server := pgtest.Server(t, devpg.Config{})
	u, err := url.Parse(elsewhere)
	require.NoError(t, err)
	here, err := url.Parse(server.URL("postgres"))
	require.NoError(t, err)
	u.User, u.Path = here.User, here.Path
	pool, err := postgres.NewHotPool(t.Context(), postgres.PoolConfig{URL: u.String(), Size: 1,
		NoRoles: true, Server: postgres.Server{Host: "127.0.0.1",
			Port: uint16(server.Config().Port)}})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	prober, err := pool.NewProber(t.Context())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- prober.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
	})
	try := func() bool {
		conn, released, err := pool.Acquire(t.Context(), tenant)
		if err != nil {
			return false
		}
		defer released()
		defer conn.Release()
		_, err = conn.Exec(t.Context(), `SELECT 1`)
		return err == nil
	}
	require.True(t, try())
	require.False(t, pool.Suspicious())
	require.NoError(t, server.Kill())
	require.Eventually(t, func() bool { return !try() && pool.Suspicious() }, patience,
		20*time.Millisecond)
	pgtest.Server(t, server.Config())
	require.Eventually(t, func() bool { return try() && !pool.Suspicious() }, patience,
		20*time.Millisecond)
}
