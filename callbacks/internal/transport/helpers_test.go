package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The whole package is tested with a proxy in the environment, which no request may use.
func TestMain(m *testing.M) {
	for _, name := range []string{
		"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY",
	} {
		os.Setenv(name, "http://proxy.invalid:3128")
	}
	os.Unsetenv("NO_PROXY")
	os.Unsetenv("no_proxy")
	os.Exit(m.Run())
}

const (
	// maxAnswer is how much of an answer the rig reads.
	maxAnswer = 16 << 10
	// ample is a timeout that no passing test reaches; short is one that some tests wait for.
	ample = 30 * time.Second
	short = 150 * time.Millisecond
	// patience is how long a test waits for an operation that must end.
	patience = 2 * time.Minute
)

// rig is a Transport that counts what it does.
type rig struct {
	*Transport
	dialled atomic.Int64 // connections
	read    atomic.Int64 // bytes
	writes  atomic.Int64 // calls
}

// setup returns a rig; config may be nil.
func setup(t *testing.T, config *tls.Config) *rig {
	r := &rig{}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r.dialled.Add(1)
		return countedConn{c.(*net.TCPConn), r}, nil
	}
	r.Transport = New(dial, config, NewIdle(256, 1024))
	t.Cleanup(r.idle.Close)
	return r
}

// trusting returns a client's TLS configuration that trusts the authorities of a pool.
func trusting(pool *x509.CertPool) *tls.Config { return &tls.Config{RootCAs: pool} }

type countedConn struct {
	*net.TCPConn
	*rig
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.rig.read.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.TCPConn.Write(b)
}

// requestTo returns a request with ample time.
func requestTo(t *testing.T, at string) Request {
	u, err := url.Parse(at)
	require.NoError(t, err)
	return Request{URL: u, Headers: Headers{{"Content-Type", "application/json"}},
		Body: []byte(`{"a":1}`), Deadline: time.Now().Add(ample), MaxAnswer: maxAnswer}
}

// post sends a request to a URL.
func (r *rig) post(t *testing.T, at string, change ...func(*Request)) (Answer, error) {
	request := requestTo(t, at)
	for _, f := range change {
		f(&request)
	}
	return r.Post(t.Context(), request)
}

// within gives a request less time.
func within(timeout time.Duration) func(*Request) {
	return func(r *Request) { r.Deadline = time.Now().Add(timeout) }
}

// requireOK sends a request, which must be answered with 200.
func (r *rig) requireOK(t *testing.T, at string) Answer {
	t.Helper()
	a, err := r.post(t, at)
	require.NoError(t, err)
	require.NoError(t, a.BodyErr)
	require.Equal(t, 200, a.Status)
	return a
}

// waitUntilHeard waits until the one idle connection, if any, gets something to read: its end, or
// several bytes.
func (r *rig) waitUntilHeard() {
	if kept := r.idle.all.Front(); kept != nil {
		socket := kept.Value.(*conn).socket
		socket.SetReadDeadline(time.Now().Add(ample)) // settled left one that is over
		socket.Read(make([]byte, 1))
	}
}

// worker is an HTTP server that counts its requests.
type worker struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
}

func (w *worker) all() []*http.Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests
}

// newWorker starts a worker that answers with handle; change may alter the server before it starts.
func newWorker(
	t *testing.T, handle http.HandlerFunc, change ...func(*httptest.Server),
) *worker {
	w := &worker{}
	w.Server = httptest.NewUnstartedServer(
		http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.mu.Lock()
			w.requests = append(w.requests, r)
			w.mu.Unlock()
			handle(rw, r)
		}))
	w.Config.ErrorLog = log.New(io.Discard, "", 0) // broken answers are meant
	for _, f := range change {
		f(w.Server)
	}
	if w.TLS == nil {
		w.Start()
	} else {
		w.StartTLS()
	}
	t.Cleanup(func() {
		w.CloseClientConnections()
		w.Close()
	})
	return w
}

// nothing answers 200 without a body.
func nothing(http.ResponseWriter, *http.Request) {}

// certificate returns a self-signed certificate for 127.0.0.1, valid from one time until another,
// and a pool with it.
func certificate(t *testing.T, from, until time.Time) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "worker"},
		NotBefore:             from,
		NotAfter:              until,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pool
}

// goodCertificate returns a certificate that is valid now.
func goodCertificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	return certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
}

// listen starts a server that leaves each connection to serve, and returns its URL.
func listen(t *testing.T, scheme string, cert tls.Certificate, serve func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			c.SetDeadline(time.Now().Add(ample))
			c = &gathering{Conn: c}
			if scheme == "https" {
				c = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
			}
			running.Go(func() {
				defer c.Close()
				serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return scheme + "://" + l.Addr().String()
}

// listenOnce starts a server that reads one request of a connection and leaves the answer to
// answer; then it closes the connection.
func listenOnce(t *testing.T, answer func(net.Conn)) string {
	return listen(t, "http", tls.Certificate{}, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			answer(c)
		}
	})
}

// gathering is a connection that may keep back what is written, to send it in one packet.
type gathering struct {
	net.Conn
	kept *bytes.Buffer // nil: nothing is kept back
}

func (g *gathering) Write(p []byte) (int, error) {
	if g.kept != nil {
		return g.kept.Write(p)
	}
	return g.Conn.Write(p)
}

// below returns the gathering below TLS.
func below(c net.Conn) *gathering {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	return c.(*gathering)
}

// writeTogether sends parts, each in a TLS record of its own, in one packet.
func writeTogether(c net.Conn, parts ...string) {
	g := below(c)
	g.kept = new(bytes.Buffer)
	for _, part := range parts {
		io.WriteString(c, part)
	}
	g.Conn.Write(g.kept.Bytes())
	g.kept = nil
}

// write writes fixed bytes.
func write(text string) func(net.Conn) {
	return func(c net.Conn) { io.WriteString(c, text) }
}

// writeForEver writes start and then part until the other side goes away.
func writeForEver(start, part string) func(net.Conn) {
	return func(c net.Conn) {
		_, err := io.WriteString(c, start)
		for err == nil {
			_, err = io.WriteString(c, part)
		}
	}
}

// dribble writes start at once and then part after part, in small packets, until the other side
// goes away.
func dribble(start, part string) func(net.Conn) {
	return func(c net.Conn) {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for _, err := io.WriteString(c, start); err == nil; _, err = io.WriteString(c, part) {
			<-tick.C
		}
	}
}

// waitForClose blocks until the other side goes away.
func waitForClose(c net.Conn) { io.Copy(io.Discard, c) }

// reset closes a connection with RST in place of FIN.
func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}
