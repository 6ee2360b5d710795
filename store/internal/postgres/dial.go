package postgres

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// silence is the time after which the system gives up a peer that is silent, or that
	// doesn't take what it is sent.
	silence = 10 * time.Second
	// closeTime bounds the end of a broken connection: the request to the server to stop
	// its statement, and the message that ends the session. The connection keeps its place
	// in the pool until then.
	closeTime = 2 * time.Second
)

// dialer opens connections to Postgres that the system watches, see setUserTimeout.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	Control: setUserTimeout,
}

// dial opens a connection of a pool. Its deadline is ConnectTimeout, which
// liftConnectDeadline lifts. A connection that only carries the request to stop a statement gets
// closeTime.
func (f *PoolGroup) dial(ctx context.Context, network, address string) (net.Conn, error) {
	began := time.Now()
	connecting := ctx.Value(connectingKey{}) != nil
	limit := ConnectTimeout
	if !connecting {
		limit = closeTime
		if f.brokeLately() {
			return nil, errBroken
		}
	}
	deadline := began.Add(limit)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	end := f.begin(cancel)
	conn, err := dialer.DialContext(ctx, network, address)
	end(err != nil && connecting)
	if err != nil {
		return nil, err
	}
	c := &watched{Conn: conn, group: f, dialed: began}
	c.connecting.Store(true)
	f.opened(c)
	return c, conn.SetDeadline(deadline)
}

// liftConnectDeadline lifts the deadline of dial: the connection is open.
func liftConnectDeadline(conn *pgconn.PgConn) error {
	return conn.Conn().SetDeadline(time.Time{})
}

// watched is a connection of a pool. It closes quickly: pgx sets a deadline that lies
// ahead only to close a connection.
type watched struct {
	net.Conn
	group      *PoolGroup
	dialed     time.Time
	server     server       // see admit; the group's mutex guards it
	connecting atomic.Bool  // until liftConnectDeadline
	reading    atomic.Int64 // since when it waits for the server, in Unix ns; 0: it does not
}

// Read reads. After a timeout it resets the pools that of the connection's group: the
// server was silent for too long.
func (c *watched) Read(into []byte) (n int, err error) {
	c.reading.Store(time.Now().UnixNano())
	n, err = c.Conn.Read(into)
	c.reading.Store(0)
	var failed net.Error
	if errors.As(err, &failed) && failed.Timeout() {
		c.group.Reset()
	}
	return n, err
}

// Close closes the connection.
func (c *watched) Close() error {
	c.group.closed(c)
	return c.Conn.Close()
}

// SetDeadline sets the deadline, but no later than in closeTime.
func (c *watched) SetDeadline(t time.Time) error {
	if t.IsZero() && c.connecting.Swap(false) {
		c.group.ready()
	}
	return c.Conn.SetDeadline(soon(t))
}

// SetWriteDeadline sets the deadline of writes, but no later than in closeTime.
func (c *watched) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(soon(t)) }

func soon(t time.Time) time.Time {
	if most := time.Now().Add(closeTime); t.After(most) {
		return most
	}
	return t
}

// Connect opens a connection for administration, outside any pool. Its statements may wait
// for the locks of other sessions, so ctx is their only deadline.
func Connect(ctx context.Context, url string) (*pgx.Conn, error) {
	return ConnectTo(ctx, url, Server{})
}

// ConnectTo is Connect to another server than that of the URL.
func ConnectTo(ctx context.Context, url string, server Server) (*pgx.Conn, error) {
	cfg, err := ConfigFor(url, AdminSettings, nil)
	if err != nil {
		return nil, err
	}
	server.replace(&cfg.Config)
	return pgx.ConnectConfig(ctx, cfg)
}

// ConnectToListen opens a connection for LISTEN, configured as the connections of the group. It is
// silent most of the time, so its silence says nothing about those.
func (f *PoolGroup) ConnectToListen(
	ctx context.Context, config *pgx.ConnConfig,
) (*pgx.Conn, error) {
	if err := f.order(ctx, config); err != nil {
		return nil, err
	}
	config.DialFunc = new(PoolGroup).dial
	return pgx.ConnectConfig(ctx, config)
}
