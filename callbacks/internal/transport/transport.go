package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// handshakeTimeout bounds the TLS handshake of a connection.
const handshakeTimeout = 10 * time.Second

// DialFunc opens a connection to an address, such as "worker.example.com:443".
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Transport sends requests. Several may share the pool of idle connections, but a connection
// serves only the transport that opened it.
//
// There is no method CloseIdleConnections on purpose: go-retryablehttp calls that after each failed
// request, which would close the connections of all workers for the fault of one.
type Transport struct {
	dial DialFunc
	tls  *tls.Config // nil: the system's authorities, no client certificate
	idle *Idle
}

// New returns a Transport. config may be nil: then the system's authorities count, and there is no
// client certificate.
func New(dial DialFunc, config *tls.Config, idle *Idle) *Transport {
	return &Transport{dial: dial, tls: config, idle: idle}
}

// Post sends a request and returns its answer. The error says why there is none: it is that of ctx
// after the end of ctx, and wraps context.DeadlineExceeded after the request's deadline. An answer
// that broke off is no error: Answer.BodyErr says so.
func (t *Transport) Post(ctx context.Context, r Request) (Answer, error) {
	given := body{Reader: bytes.NewReader(r.Body), length: int64(len(r.Body))}
	x, err := t.newExchange(r, given)
	if err != nil {
		return Answer{}, err
	}
	defer x.awaitSender()
	plain := http.Request{Method: http.MethodPost, URL: r.URL, Header: http.Header{}}
	req, err := retryablehttp.FromRequest(plain.WithContext(ctx))
	if err != nil {
		return Answer{}, err
	}
	resp, err := x.client().Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	return readAnswer(resp, r.MaxAnswer), nil
}

// client returns a client that makes the exchange, once. The exchange itself is its RoundTripper,
// because the request is more than an http.Request holds.
func (x *exchange) client() *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient:   &http.Client{Transport: x, CheckRedirect: NoRedirects},
		CheckRetry:   neverRetry,
		ErrorHandler: retryablehttp.PassthroughErrorHandler, // errors as they are
	}
}

// neverRetry is a retry policy without retries. The library's own policy would take an answer that
// comes at the end of its context for an error, and leave its body open.
func neverRetry(context.Context, *http.Response, error) (bool, error) { return false, nil }

// NoRedirects makes an http.Client return a redirect like any other answer.
func NoRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// CloseIdle closes the idle connections of this transport.
func (t *Transport) CloseIdle() {
	t.idle.closeIf(func(c *conn) bool { return c.to.transport == t })
}

// address is where a connection leads, and which transport opened it.
type address struct {
	transport *Transport
	secure    bool
	hostPort  string
}

func (t *Transport) addressOf(u *url.URL) address {
	a := address{transport: t, secure: u.Scheme == "https", hostPort: u.Host}
	switch {
	case u.Port() != "":
	case a.secure:
		a.hostPort = net.JoinHostPort(u.Hostname(), "443")
	default:
		a.hostPort = net.JoinHostPort(u.Hostname(), "80")
	}
	return a
}

// connection returns an idle connection to a URL's host, or a new one.
func (t *Transport) connection(ctx context.Context, u *url.URL, deadline time.Time) (*conn, error) {
	to := t.addressOf(u)
	if c := t.idle.take(to); c != nil {
		return c, nil
	}
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	socket, err := t.dial(ctx, "tcp", to.hostPort)
	if err != nil {
		return nil, err
	}
	if !to.secure {
		return newConn(to, socket, socket), nil
	}
	secured, err := t.handshake(ctx, socket, u.Hostname())
	if err != nil {
		socket.Close()
		return nil, HandshakeError{err}
	}
	return newConn(to, socket, secured), nil
}

// HandshakeError is why TLS could not begin.
type HandshakeError struct{ error }

// Unwrap returns the error itself.
func (e HandshakeError) Unwrap() error { return e.error }

var errHandshake = errors.New("TLS handshake timeout")

func (t *Transport) handshake(ctx context.Context, socket net.Conn, host string) (net.Conn, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.tls != nil {
		config = t.tls.Clone()
	}
	config.ServerName, config.NextProtos = host, []string{"http/1.1"}
	ctx, cancel := context.WithTimeoutCause(ctx, handshakeTimeout, errHandshake)
	defer cancel()
	c := tls.Client(socket, config)
	err := c.HandshakeContext(ctx)
	if errors.Is(context.Cause(ctx), errHandshake) {
		err = errHandshake
	}
	return c, err
}

// RoundTrip lets owners of an http.Request send it by this transport, such as package
// oauth2. It must be a POST of a known length. The answer is returned as soon as its head is
// there; the context also ends the reading of its body.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	x, err := t.exchangeOf(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return x.RoundTrip(req)
}

// Do sends an http.Request, as Post sends a Request.
func (t *Transport) Do(req *http.Request, maxAnswer int) (Answer, error) {
	client := http.Client{Transport: t, CheckRedirect: NoRedirects}
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	return readAnswer(resp, maxAnswer), nil
}

func (t *Transport) exchangeOf(req *http.Request) (*exchange, error) {
	switch {
	case req.Method != http.MethodPost:
		return nil, fmt.Errorf("the method is %s; this transport sends POST only", req.Method)
	case req.ContentLength < 0:
		return nil, errors.New("the length of the request's body isn't known")
	}
	given := body{Reader: http.NoBody, length: req.ContentLength}
	if req.Body != nil {
		given.Reader, given.closer = req.Body, req.Body
	}
	r := Request{URL: req.URL}
	for name, values := range req.Header {
		for _, value := range values {
			r.Headers = append(r.Headers, Header{Name: name, Value: value})
		}
	}
	return t.newExchange(r, given)
}
