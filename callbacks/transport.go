package callbacks

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"
)

const dialTimeout = 10 * time.Second

// transport sends requests by HTTP/1.1 over connections that are kept and shared. No
// proxy is taken from the environment, nothing is unpacked on the way (a small body
// could become a huge one), a redirect is an answer like any, and each request is sent
// once.
//
// It does the work of http.Transport with the parser of net/http, but in
// the goroutine that has the request: a request costs no channels and no switches
// between goroutines, and a connection that is kept has neither goroutines nor buffers.
// It has no CloseIdleConnections on purpose: go-retryablehttp calls that after each
// failed request, which would close every worker's connections for the fault of one.
type transport struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	tls  *tls.Config // nil: the system's authorities, no certificate
	idle *idle
}

// newTransport returns the transport of a node's deliveries to endpoints without
// certificates of their own, or (config not nil) with some. The address that is really
// dialled is checked. Its connections are kept in pool, which transports share.
func newTransport(cfg Config, config *tls.Config, pool *idle) *transport {
	return &transport{dial: newGuard(cfg).DialContext, tls: config, idle: pool}
}

// RoundTrip sends a request and returns its answer as soon as the headers are there.
// Once the request's context ends, its connection is closed, and once its time is up, nothing
// more comes from it: also while the body of the answer is read.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	err := ctx.Err()
	if err == nil && requestContextOf(ctx) == nil { // who sets those in the context checks them
		err = headersOf(req).check()
	}
	var c *conn
	if err == nil {
		c, err = t.connection(ctx, req.URL)
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	watched, deadline := limitsOf(ctx)
	c.limit(deadline)
	x := &exchange{conn: c, idle: t.idle, unwatch: context.AfterFunc(watched, c.cut)}
	resp, err := x.run(req)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return resp, err
}

// connection returns a kept connection to where a URL leads, or a new one.
func (t *transport) connection(ctx context.Context, u *url.URL) (*conn, error) {
	to := t.addressOf(u)
	if c := t.idle.take(to); c != nil {
		return c, nil
	}
	raw, err := t.dial(ctx, "tcp", to.hostPort)
	if err != nil {
		return nil, err
	}
	if !to.secure {
		return newConn(to, raw, raw), nil
	}
	secured, err := t.handshake(ctx, raw, u.Hostname())
	if err != nil {
		raw.Close()
		return nil, err
	}
	return newConn(to, raw, secured), nil
}

var errHandshake = errors.New("TLS handshake timeout")

func (t *transport) handshake(ctx context.Context, raw net.Conn, host string) (net.Conn, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.tls != nil {
		config = t.tls.Clone()
	}
	config.ServerName, config.NextProtos = host, []string{"http/1.1"}
	ctx, cancel := context.WithTimeoutCause(ctx, dialTimeout, errHandshake)
	defer cancel()
	c := tls.Client(raw, config)
	err := c.HandshakeContext(ctx)
	if errors.Is(context.Cause(ctx), errHandshake) {
		err = errHandshake
	}
	return c, err
}
