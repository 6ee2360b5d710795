package store

import (
	"context"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// silence is after how long the system gives up a peer that is silent, or doesn't take
	// what it is sent.
	silence = 10 * time.Second
	// closeTime bounds the end of a connection that broke: to ask the server to stop its
	// statement, and then to take leave. It has its place in the pool until then.
	closeTime = 2 * time.Second
)

// dialer opens connections to Postgres that the system watches, see tcpLimits.
var dialer = net.Dialer{
	KeepAliveConfig: net.KeepAliveConfig{
		Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	Control: tcpLimits,
}

// dial opens a connection of a pool. It has connectTimeout until opened lifts that; one that
// only carries the request to stop a statement has closeTime.
func (d *distrust) dial(ctx context.Context, network, address string) (net.Conn, error) {
	limit := closeTime
	if ctx.Value(connectingKey{}) != nil {
		limit = connectTimeout
	}
	deadline := time.Now().Add(limit)
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return watched{conn, d}, conn.SetDeadline(deadline)
}

// opened lifts the deadline of a connection that is open.
func opened(conn *pgconn.PgConn) error { return conn.Conn().SetDeadline(time.Time{}) }

// watched is a connection of a pool. It doesn't take long to close: pgx sets deadlines that
// lie ahead only then.
type watched struct {
	net.Conn
	fate *distrust
}

// Read reads. A server that was silent for too long isn't trusted on other connections.
func (c watched) Read(into []byte) (n int, err error) {
	n, err = c.Conn.Read(into)
	if failed, ok := err.(net.Error); ok && failed.Timeout() {
		c.fate.reset()
	}
	return n, err
}

// SetDeadline sets the deadline, closeTime ahead at most.
func (c watched) SetDeadline(t time.Time) error { return c.Conn.SetDeadline(soon(t)) }

// SetWriteDeadline sets the deadline of writes, closeTime ahead at most.
func (c watched) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(soon(t)) }

func soon(t time.Time) time.Time {
	if most := time.Now().Add(closeTime); t.After(most) {
		return most
	}
	return t
}

// connect opens a connection of its own, for administration. Its statements may wait for
// others' locks, so they have no deadline but that of ctx.
func connect(ctx context.Context, url string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.ConnectTimeout = connectTimeout
	cfg.DialFunc = dialer.DialContext
	return pgx.ConnectConfig(ctx, cfg)
}
