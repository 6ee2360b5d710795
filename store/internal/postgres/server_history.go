package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// server is a server that takes writes. In the zero value, there is none.
type server struct {
	database string // see databaseSQL; "": it wasn't asked
	cluster  string // its system identifier; "": it can't be read
	timeline string // in hexadecimal, of one length
}

// timelineSQL tells which of two servers replaced the other one: each promotion begins a later
// timeline of the same cluster.
const timelineSQL = `SELECT system_identifier::text,
  pg_catalog."left"(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8)
FROM pg_catalog.pg_control_system()`

// timelineOf returns the cluster and the timeline of a server; neither, if it doesn't tell them, as
// to a user without the rights.
func timelineOf(ctx context.Context, conn *pgconn.PgConn) (s server, err error) {
	row, err := firstRow(ctx, conn, timelineSQL)
	switch {
	case err == nil:
		s.cluster, s.timeline = string(row[0]), string(row[1])
	case IsPassing(err):
		return s, err
	}
	return s, nil
}

// replacedBy reports whether a later promotion of the same cluster made another server.
func (s server) replacedBy(other server) bool {
	return s.cluster != "" && s.cluster == other.cluster && s.timeline < other.timeline
}

var errReplaced = errors.New("this server is an old primary: a later one has replaced it")

// refuseReplaced makes new connections go on to the next host where a server is an old primary that
// nobody stopped: the present one replaced it. They do so until the prober, which looks at all
// hosts, takes that server for the present one. It costs each new connection a statement, unless
// the timeline of the present server is unknown.
func (f *PoolGroup) refuseReplaced(cfg *pgx.ConnConfig) {
	before := cfg.ValidateConnect
	cfg.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if before != nil {
			if err := before(ctx, conn); err != nil {
				return err
			}
		}
		if !f.knowsTimeline() {
			return nil
		}
		s, err := timelineOf(ctx, conn)
		if err != nil {
			return err
		}
		return f.admit(s, watchedOf(conn))
	}
}

// start notes the present server, as the prober begins.
func (f *PoolGroup) start(present server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.present = present
}

func (f *PoolGroup) knowsTimeline() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.present.cluster != ""
}

// admit notes which server a connection reached, and refuses one that the present one replaced. The
// refusal counts as a failure, so the prober goes on looking.
func (f *PoolGroup) admit(s server, c *watched) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.replacedBy(f.present) {
		f.failed = time.Now()
		return errReplaced
	}
	if c != nil {
		c.server = s
	}
	return nil
}

// watchedOf returns the connection that dial opened; nil: another dialer did.
func watchedOf(conn *pgconn.PgConn) *watched {
	nc := conn.Conn()
	if encrypted, ok := nc.(*tls.Conn); ok {
		nc = encrypted.NetConn()
	}
	c, _ := nc.(*watched)
	return c
}
