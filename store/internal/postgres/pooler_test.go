package postgres_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Poolers in transaction mode are refused, also if they seem to keep a session at first: two of
// them behind one address, one with connections that take turns, and one of several hosts of a URL.
func TestTransactionPoolersAreFound(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T, through string) {
		t.Helper()
		conn, err := postgres.Connect(t.Context(), through)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		require.ErrorContains(t, err, "(transaction mode)")
		require.Equal(t, asyncflow.CodeUnavailable,
			asyncflow.CodeOf(postgres.ConnectError(through, err)))
	}
	untouched := func(t *testing.T, through string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), through)
		require.NoError(t, err)
		defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
		for range 4 {
			var set int
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_settings
				WHERE name = 'search_path' AND source = 'session'`, pgx.QueryExecModeSimpleProtocol).
				Scan(&set))
			require.Zero(t, set)
		}
	}
	pooler := pgtest.PgBouncer{Mode: "transaction", Servers: 4}
	t.Run("two behind one address", func(t *testing.T) {
		t.Parallel()
		direct := pgtest.Database(t, nil)
		one, other := pooler.Listen(t, direct), pooler.Listen(t, direct)
		var n atomic.Int32
		refused(t, forward(t, one, func() string {
			if n.Add(1)%2 == 0 {
				return other
			}
			return one
		}, nil))
	})
	t.Run("idle connections that take turns", func(t *testing.T) {
		t.Parallel()
		through := pgtest.PgBouncer{Mode: "transaction", Servers: 4, TakeTurns: true}.
			Listen(t, pgtest.Database(t, nil))
		var open []pgx.Tx
		for range 4 { // as many as clients are compared
			conn, err := pgx.Connect(t.Context(), through)
			require.NoError(t, err)
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			open = append(open, tx)
		}
		for _, tx := range open {
			require.NoError(t, tx.Rollback(t.Context()))
		}
		refused(t, through)
		untouched(t, through)
	})
	t.Run("the second host of a URL", func(t *testing.T) {
		t.Parallel()
		direct := pgtest.Database(t, nil)
		one, second := pooler.Listen(t, direct), pooler.Listen(t, direct)
		var n atomic.Int32
		first := forward(t, one, func() string {
			if n.Add(1) == 1 {
				return ""
			}
			return one
		}, nil)
		u, err := url.Parse(second)
		require.NoError(t, err)
		v, err := url.Parse(first)
		require.NoError(t, err)
		u.Host = v.Host + "," + u.Host
		refused(t, u.String())
	})
}

// Connections that are opened together check a pooler once.
func TestPoolerIsCheckedOnce(t *testing.T) {
	t.Parallel()
	through := pgtest.PgBouncer{Mode: "session", Servers: 100}.Listen(t, pgtest.Database(t, nil))
	var opened atomic.Int32
	counted := forward(t, through, func() string {
		opened.Add(1)
		return through
	}, nil)
	const clients = 10
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			conn, err := postgres.Connect(t.Context(), counted)
			if assert.NoError(t, err) {
				assert.NoError(t, conn.Close(t.Context()))
			}
		})
	}
	wg.Wait()
	assert.Equal(t, int32(clients+3), opened.Load())
}

// A pooled connection that leads to another database than the direct ones is refused when it is
// opened, long after the start.
func TestPoolerLeadsToAnotherDatabaseLater(t *testing.T) {
	t.Parallel()
	direct, other := pgtest.Database(t, prepare), pgtest.Database(t, prepare)
	db, err := pgxpool.New(t.Context(), direct)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	ways := []string{
		pgtest.PgBouncer{Mode: "transaction", Servers: 2}.Listen(t, direct),
		pgtest.PgBouncer{Mode: "transaction", Servers: 2, Database: databaseOf(t, other)}.
			Listen(t, direct),
	}
	var way atomic.Int32
	through := forward(t, ways[0], func() string { return ways[way.Load()] }, nil)
	pool, _ := openPooled(t, db, through, nil)
	ask := func() error {
		pool.Reset()
		_, err := pool.Exec(t.Context(), `SELECT 1`)
		return postgres.Wrap(err, "ask")
	}
	require.NoError(t, ask())
	way.Store(1)
	err = ask()
	require.ErrorContains(t, err, "the pooled URL leads to another database than DATABASE_URL")
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(err))
	way.Store(0)
	require.NoError(t, ask())
}

// After a switchover, direct connections may still lead to the old primary, which is a standby now.
// They are opened anew before a pooled connection is refused.
func TestPoolerFollowsASwitchoverFirst(t *testing.T) {
	t.Parallel()
	primary := pgtest.Server(t, devpg.Config{})
	require.NoError(t, prepare(t.Context(), primary.URL("postgres")))
	standby := pgtest.Standby(t, primary)
	ways := []string{primary.URL("postgres"), standby.URL("postgres")}
	var way atomic.Int32
	moving := forward(t, ways[0], func() string { return ways[way.Load()] }, nil)
	group := &postgres.PoolGroup{}
	direct, err := postgres.NewPool(t.Context(), postgres.PoolConfig{URL: moving, Size: 1,
		NoRoles: true, Statement: postgres.BaseStatement, Group: group})
	require.NoError(t, err)
	t.Cleanup(direct.Close)
	open := func(group *postgres.PoolGroup) error {
		_, err := postgres.OpenPooler(t.Context(), ways[1], direct, group, true)
		return err
	}
	require.NoError(t, direct.Ping(t.Context()))
	require.ErrorContains(t, open(group), "leads to another database", "it does")
	var promoted bool
	way.Store(1)
	standbyDB, err := pgx.Connect(t.Context(), ways[1])
	require.NoError(t, err)
	defer standbyDB.Close(context.Background())
	require.NoError(t, standbyDB.QueryRow(t.Context(), `SELECT pg_promote()`).Scan(&promoted))
	require.True(t, promoted)
	require.ErrorContains(t, open(nil), "leads to another database", "the connection is an old one")
	require.Eventually(t, func() bool { // resets leave a pause between them
		return open(group) == nil
	}, patience, 100*time.Millisecond)
}

// The user of the pooled URL must be able to do the work of tenants, now and later.
func TestPoolerOfAnotherUser(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t, prepare)
	db, err := pgxpool.New(t.Context(), direct)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	exec := func(sql string) {
		t.Helper()
		_, err := db.Exec(context.WithoutCancel(t.Context()), sql)
		require.NoError(t, err)
	}
	name := databaseOf(t, direct) + "-pooled"
	user := postgres.Quote(name)
	exec(`CREATE ROLE ` + user + ` LOGIN PASSWORD 'secret'`)
	t.Cleanup(func() { exec(`DROP OWNED BY ` + user + `; DROP ROLE ` + user) })
	u, err := url.Parse(direct)
	require.NoError(t, err)
	owner := u.User.Username()
	u.User = url.UserPassword(name, "secret")
	open := func() error {
		_, err := postgres.OpenPooler(t.Context(), u.String(), db, nil, false)
		return err
	}
	lacked := func(role string) {
		t.Helper()
		err := open()
		require.ErrorContains(t, err, "the user "+name+" of the pooled URL can't take the role "+
			role)
		require.ErrorContains(t, err, "ALTER ROLE "+user+" INHERIT; GRANT "+postgres.Quote(role)+
			" TO "+user)
	}
	var base, role string
	require.NoError(t, db.QueryRow(t.Context(), `SELECT base_role, role
		FROM asyncflow.fence, asyncflow.tenants`).Scan(&base, &role))
	require.ErrorContains(t, open(), "can't take the role ")
	exec(`GRANT ` + postgres.Quote(base) + ` TO ` + user)
	exec(`GRANT ` + postgres.Quote(owner) + ` TO ` + user)
	require.NoError(t, open())
	exec(`REVOKE ` + postgres.Quote(owner) + ` FROM ` + user)
	exec(`GRANT ` + postgres.Quote(role) + ` TO ` + user)
	lacked(owner)
	_, err = postgres.OpenPooler(t.Context(), direct, db, nil, false)
	require.NoError(t, err)
	var version int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT current_setting('server_version_num')::int`).
		Scan(&version))
	if version < 160000 { // later, each grant says whether its rights are inherited
		exec(`GRANT ` + postgres.Quote(owner) + ` TO ` + user + `; ALTER ROLE ` + user + ` NOINHERIT`)
		require.ErrorContains(t, open(), "doesn't inherit its rights")
	}
}

// A setting that the server behind a pooler doesn't know, as after a failover, costs one try:
// the pool opens new connections, which choose anew.
func TestPoolerRefusesAChosenSetting(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t, prepare)
	db, err := pgxpool.New(t.Context(), direct)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	pool, roles := openPooled(t, db, direct,
		map[string]string{"plan_cache_mode": "unknown"})
	acquire := func(ctx context.Context) (*pgxpool.Conn, func(), error) {
		conn, err := pool.Acquire(ctx)
		return conn, func() {}, err
	}
	tenantDB := postgres.NewTenantDB(acquire, roles, tenant)
	process := func() (pid uint32) {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		return conn.Conn().PgConn().PID()
	}
	before := process()
	_, err = tenantDB.Exec(t.Context(), `SELECT 1`)
	require.ErrorContains(t, err, "plan_cache_mode")
	assert.False(t, postgres.IsDataException(err))
	require.Equal(t, asyncflow.CodeUnavailable, asyncflow.CodeOf(postgres.Wrap(err, "ask")))
	assert.NotEqual(t, before, process())
}

// A pooler that refuses to prepare statements for a passing reason is asked again. Otherwise the
// error says what failed.
func TestPoolerRefusesToPrepare(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t, prepare)
	db, err := pgxpool.New(t.Context(), direct)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	open := func(code string, times int32) (*postgres.Pooler, error) {
		var n atomic.Int32
		refuse := func() *pgproto3.ErrorResponse {
			if n.Add(1) > times {
				return nil
			}
			return &pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR",
				Code: code, Message: "not today"}
		}
		through := forward(t, direct, func() string { return direct }, refuse)
		return postgres.OpenPooler(t.Context(), through, db, nil, false)
	}
	for code, times := range map[string]int32{"53300": 2, "0A000": 0} {
		p, err := open(code, times)
		require.NoError(t, err, code)
		assert.True(t, p.Prepared, code)
	}
	p, err := open("0A000", 1)
	require.NoError(t, err)
	assert.False(t, p.Prepared)
	_, err = open("53300", 100)
	require.ErrorContains(t, err, "not today")
	_, err = open("42501", 1)
	require.ErrorContains(t, err,
		"whether the pooler keeps prepared statements can't be found out: not today")
}

// openPooled opens a pool through a pooler.
func openPooled(
	t *testing.T, db *pgxpool.Pool, through string, settings map[string]string,
) (*pgxpool.Pool, *postgres.Roles) {
	t.Helper()
	p, err := postgres.OpenPooler(t.Context(), through, db, nil, false)
	require.NoError(t, err)
	pool, err := postgres.NewPool(t.Context(), postgres.PoolConfig{Size: 1, Pooler: p,
		Settings: settings, Statement: postgres.BaseStatement, Group: &postgres.PoolGroup{}})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	roles, err := postgres.NewRoles(t.Context(), db, false)
	require.NoError(t, err)
	return pool, roles
}

func databaseOf(t *testing.T, rawURL string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(rawURL)
	require.NoError(t, err)
	return cfg.Database
}

// forward listens for connections and sends each to the host of the URL that to returns, or ends it
// for "". It returns like with its own address. Refuse, unless it is nil, may answer the statements
// that are prepared by name.
func forward(
	t *testing.T, like string, to func() string, refuse func() *pgproto3.ErrorResponse,
) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			target := to()
			go func() {
				defer conn.Close()
				if u, err := url.Parse(target); err == nil && target != "" {
					passOn(conn, u.Host, refuse)
				}
			}()
		}
	}()
	u, err := url.Parse(like)
	require.NoError(t, err)
	u.Host = l.Addr().String()
	return u.String()
}

func passOn(client net.Conn, host string, refuse func() *pgproto3.ErrorResponse) {
	server, err := net.Dial("tcp", host)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer client.Close()
		_, _ = io.Copy(client, server)
	}()
	if refuse == nil {
		_, _ = io.Copy(server, client)
		return
	}
	var answer *pgproto3.ErrorResponse // until the client waits for it
	for head := 4; ; head = 5 {        // the first message is without a type
		message := make([]byte, head)
		if _, err := io.ReadFull(client, message); err != nil {
			return
		}
		rest := make([]byte, binary.BigEndian.Uint32(message[head-4:])-4)
		if _, err := io.ReadFull(client, rest); err != nil {
			return
		}
		if head == 5 && message[0] == 'P' && rest[0] != 0 {
			answer = refuse()
		}
		if answer == nil {
			_, _ = server.Write(append(message, rest...))
			continue
		}
		if message[0] == 'S' {
			text, _ := answer.Encode(nil)
			text, _ = (&pgproto3.ReadyForQuery{TxStatus: 'E'}).Encode(text)
			_, _ = client.Write(text)
			answer = nil
		}
	}
}
