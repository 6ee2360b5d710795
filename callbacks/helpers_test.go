package callbacks

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// The whole package is tested with a proxy in the environment, which no delivery may use.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy",
		"ALL_PROXY"} {
		os.Setenv(name, "http://proxy.invalid:3128")
	}
	os.Unsetenv("NO_PROXY")
	os.Unsetenv("no_proxy")
	os.Exit(m.Run())
}

const (
	testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	maxOutput  = 1024
	// ample is a timeout that no passing test reaches; short is one that some tests wait for.
	ample = 30 * time.Second
	short = 150 * time.Millisecond
)

func testKeys(t require.TestingT, secret string) *Keys {
	keys, err := NewKeys([]byte(secret))
	require.NoError(t, err)
	return keys
}

const nodeSecret = "0123456789abcdef0123456789abcdef"

// rig is a Sender with its connections counted.
type rig struct {
	*Sender
	dialled atomic.Int64 // connections
	read    atomic.Int64 // bytes
}

// setup returns a Sender that may reach loopback; change may alter its Config.
func setup(t *testing.T, change ...func(*Config)) *rig {
	cfg := Config{
		PublicURL: "https://tasks.example.com",
		Version:   "1.2.3",
		MaxOutput: maxOutput,
		Egress:    asyncflow.Egress{AllowHTTP: true, AllowPrivate: true},
	}
	for _, f := range change {
		f(&cfg)
	}
	r := &rig{}
	guard := newGuard(cfg)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := guard.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		r.dialled.Add(1)
		return countedConn{c.(*net.TCPConn), r}, nil
	}
	r.Sender = newSender(cfg, testKeys(t, nodeSecret), dial)
	t.Cleanup(r.routes.idle.Close)
	return r
}

// Send sends one delivery.
func (r *rig) Send(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
	return r.Sender.Send(ctx, []asyncflow.Delivery{d})[0]
}

// envelope returns a delivery as it is sent, with its token replaced.
func envelope(d asyncflow.Delivery, base, token string) []byte {
	s := &Sender{cfg: Config{PublicURL: base}, keys: madeKeys}
	own := madeKeys.CompletionToken(Completion{Tenant: d.Tenant, Task: d.Lease.ID, Seq: d.Lease.Seq,
		Expiry: d.Deadline.Add(lateReports), Endpoint: d.Endpoint.ID})
	return bytes.Replace(s.appendEnvelope(nil, &d), []byte(own), []byte(token), 1)
}

var madeKeys, _ = NewKeys([]byte(nodeSecret))

type countedConn struct {
	*net.TCPConn
	*rig
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.rig.read.Add(int64(n))
	return n, err
}

// sealed returns a secret of endpoint e1 as it is stored.
func sealed(secret string) asyncflow.SigningSecret {
	keys, err := NewKeys([]byte(nodeSecret))
	if err != nil {
		panic(err)
	}
	return asyncflow.SigningSecret{ID: "s1", Kind: asyncflow.SecretHMAC,
		Sealed: keys.Seal(secret, "e1")}
}

// deliveryTo returns a delivery to a URL.
func deliveryTo(url string) asyncflow.Delivery {
	at := time.Now()
	return asyncflow.Delivery{
		Tenant: "acme",
		Lease: asyncflow.Lease{
			ID: asyncflow.NewTaskID("thumbnails", 1, 42), Seq: 3, Stage: "resize", Attempt: 2,
			Context: json.RawMessage(`{"image":"harbour.jpg"}`),
		},
		Endpoint: &asyncflow.Endpoint{ID: "e1", URL: url,
			Secrets: []asyncflow.SigningSecret{sealed(testSecret)}},
		MaxAttempts: 5,
		At:          at,
		Timeout:     ample,
		Deadline:    at.Add(time.Hour),
	}
}

// received is a request as a worker got it.
type received struct {
	*http.Request
	body []byte
}

// worker is an HTTP server that keeps every request.
type worker struct {
	url         string
	connections atomic.Int64
	secret      string

	mu       sync.Mutex
	requests []received
}

func (w *worker) keep(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, received{r, body})
}

func (w *worker) all() []received {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests
}

// newWorker starts a worker that answers with handle. The request is read and kept before. At the
// end of the test, every request must verify.
func newWorker(t *testing.T, handle http.HandlerFunc, change ...func(*httptest.Server)) *worker {
	return newWorkerOf(t, testSecret, handle, change...)
}

// newWorkerOf starts a worker with another secret.
func newWorkerOf(
	t *testing.T, secret string, handle http.HandlerFunc, change ...func(*httptest.Server),
) *worker {
	w := &worker{secret: secret}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter,
		r *http.Request) {
		w.keep(r)
		handle(rw, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken answers are meant
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			w.connections.Add(1)
		}
	}
	for _, f := range change {
		f(server)
	}
	if server.TLS == nil {
		server.Start()
	} else {
		server.StartTLS()
	}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		w.requireSigned(t)
	})
	w.url = server.URL
	return w
}

// requireSigned verifies the requests as a worker would, with the official library.
func (w *worker) requireSigned(t *testing.T) {
	verifier, err := standardwebhooks.NewWebhook(w.secret)
	require.NoError(t, err)
	for _, r := range w.all() {
		require.NoError(t, verifier.Verify(r.body, r.Header))
		changed := append(bytes.Clone(r.body), 0x20)
		require.Error(t, verifier.Verify(changed, r.Header))
	}
}

// newRawWorker starts a worker that reads each request and leaves the bytes of the answer to
// answer. Then it closes the connection.
func newRawWorker(t *testing.T, answer func(net.Conn)) *worker {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &worker{secret: testSecret, url: "http://" + listener.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			w.connections.Add(1)
			running.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(ample))
				if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
					w.keep(r)
					answer(conn)
				}
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
		w.requireSigned(t)
	})
	return w
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

// waitForClose blocks until the other side goes away.
func waitForClose(c net.Conn) { io.Copy(io.Discard, c) }

// reset closes a connection with RST in place of FIN.
func reset(c net.Conn) {
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
}
