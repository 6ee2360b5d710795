package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// stuckWorker is a worker over TLS 1.3 that reads one request of a connection, and nothing more.
type stuckWorker struct {
	url     string
	arrived chan bool // a request is there; its answer waits for more
	more    chan bool
	skip    string // why the test can't go on; "": it can
}

// answerOK is an answer that leaves the connection open.
const answerOK = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// newStuckWorker starts a stuckWorker. Its answer goes out in one packet with messages that ask for
// new keys: some before the answer, some after it.
func newStuckWorker(t *testing.T, cert tls.Certificate, before, after int) *stuckWorker {
	w := &stuckWorker{arrived: make(chan bool), more: make(chan bool)}
	at := listen(t, "http", cert, func(c net.Conn) {
		socket := c.(*gathering)
		if err := socket.Conn.(*net.TCPConn).SetReadBuffer(1); err != nil { // the least there is
			t.Error(err)
		}
		var log bytes.Buffer
		secured := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert},
			MinVersion: tls.VersionTLS13, KeyLogWriter: &log, SessionTicketsDisabled: true})
		if _, err := http.ReadRequest(bufio.NewReader(secured)); err != nil {
			return
		}
		if secured.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
			w.skip = "without AES in hardware, Go takes other ciphers than this test knows"
		}
		w.arrived <- true
		<-w.more
		keys := &writeKeys{secret: trafficSecret(t, log.String())}
		var packet []byte
		for range before {
			packet = append(packet, keys.askForNew(t)...)
		}
		packet = append(packet, keys.seal(t, 23, []byte(answerOK))...)
		for range after {
			packet = append(packet, keys.askForNew(t)...)
		}
		socket.Conn.Write(packet)
		<-w.more
	})
	w.url = strings.Replace(at, "http", "https", 1)
	return w
}

// trafficSecret returns the secret that seals a server's first records, from its key log.
func trafficSecret(t *testing.T, log string) []byte {
	_, line, _ := strings.Cut(log, "SERVER_TRAFFIC_SECRET_0 ")
	_, text, _ := strings.Cut(line, " ")
	text, _, _ = strings.Cut(text, "\n")
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) == 0 {
		t.Errorf("no secret in the key log: %v", err)
	}
	return secret
}

// writeKeys seal a server's records with TLS_AES_128_GCM_SHA256 (RFC 8446, 5.2 and 7.3). Package
// tls never asks for new keys, so this test does.
type writeKeys struct {
	secret []byte
	seq    uint64
}

func (k *writeKeys) expand(t *testing.T, label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(info, byte(len("tls13 "+label))), "tls13 "+label...)
	out, err := hkdf.Expand(sha256.New, k.secret, string(append(info, 0)), n)
	if err != nil {
		t.Error(err)
	}
	return out
}

// seal returns a record of a kind with some content.
func (k *writeKeys) seal(t *testing.T, kind byte, content []byte) []byte {
	block, err := aes.NewCipher(k.expand(t, "key", 16))
	if err != nil {
		t.Error(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Error(err)
	}
	nonce := k.expand(t, "iv", aead.NonceSize())
	for i, b := range binary.BigEndian.AppendUint64(nil, k.seq) {
		nonce[len(nonce)-8+i] ^= b
	}
	k.seq++
	header := binary.BigEndian.AppendUint16([]byte{23, 3, 3},
		uint16(len(content)+1+aead.Overhead()))
	return aead.Seal(header, nonce, append(bytes.Clone(content), kind), header)
}

// askForNew returns a KeyUpdate that requires an answer, and moves on to the next keys.
func (k *writeKeys) askForNew(t *testing.T) []byte {
	record := k.seal(t, 22, []byte{24, 0, 0, 1, 1})
	k.secret, k.seq = k.expand(t, "traffic upd", sha256.Size), 0
	return record
}

// captured returns a channel that gets the connections of a rig.
func (r *rig) captured() <-chan net.Conn {
	all := make(chan net.Conn, 10)
	dial := r.dial
	r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		all <- c
		return c, nil
	}
	return all
}

// stuff fills a connection, below TLS, with bytes that the other side doesn't read, until it takes
// no more or is closed. Then it sets the write deadline.
func stuff(c net.Conn, until time.Time) {
	socket := c.(countedConn).TCPConn
	for junk, n := make([]byte, 64<<10), 1; n > 0; {
		socket.SetWriteDeadline(time.Now().Add(short))
		n, _ = socket.Write(junk)
	}
	socket.SetWriteDeadline(until)
}

// requireSoon fails unless do returns.
func requireSoon(t *testing.T, what string, do func()) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		defer close(over)
		do()
	}()
	select {
	case <-over:
	case <-time.After(patience):
		require.FailNow(t, what+" doesn't end")
	}
}

// A worker that reads nothing more, and asks for new TLS keys with its answer, blocks nothing in
// the node: neither a request nor the sweep of idle connections waits until it reads.
func TestWorkerThatStopsReading(t *testing.T) {
	t.Parallel()
	cert, pool := goodCertificate(t)
	for name, c := range map[string]struct {
		before, after int
		ends          bool // well; else it may fail, in its time
	}{
		"asks after its answer":   {0, 1, true},
		"asks many times":         {0, 10, true},
		"asks before its answer":  {1, 0, false},
		"asks for nothing at all": {0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, other := newStuckWorker(t, cert, c.before, c.after), newWorker(t, nothing)
			defer close(w.more)
			r := setup(t, trusting(pool))
			dialled := r.captured()
			request := requestTo(t, w.url)
			if !c.ends {
				within(2 * time.Second)(&request)
			}
			var err error
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, err = r.Post(t.Context(), request)
			}()
			<-w.arrived
			if w.skip != "" {
				t.Skip(w.skip)
			}
			stuff(<-dialled, request.Deadline)
			w.more <- true
			requireSoon(t, "the request", func() { <-sent })
			if c.ends {
				require.NoError(t, err)
			}
			requireSoon(t, "the sweep", r.idle.sweep)
			requireSoon(t, "another worker's request", func() {
				_, err = r.post(t, other.URL)
			})
			require.NoError(t, err)
		})
	}
}

// Whatever ends an idle connection closes its socket without a word. TLS would write a farewell,
// and wait for seconds if the worker doesn't read.
func TestConnectionsEndWithoutAWord(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, r *rig, c *conn, w *httptest.Server){
		"it is old": func(_ *testing.T, r *rig, c *conn, _ *httptest.Server) {
			c.since = c.since.Add(-idleTime)
			r.idle.sweep()
		},
		"the sweep finds it speaking": func(_ *testing.T, r *rig, _ *conn, w *httptest.Server) {
			w.CloseClientConnections()
			r.waitUntilHeard()
			r.idle.sweep()
		},
		"a request finds it speaking": func(t *testing.T, r *rig, c *conn, w *httptest.Server) {
			w.CloseClientConnections()
			r.waitUntilHeard()
			require.Nil(t, r.idle.take(c.to))
		},
		"others need its place": func(_ *testing.T, r *rig, c *conn, _ *httptest.Server) {
			r.idle.total = 1
			other, _ := pair(t, "other")
			r.idle.put(other)
		},
		"its transport ends": func(_ *testing.T, r *rig, _ *conn, _ *httptest.Server) {
			r.CloseIdle()
		},
		"all end": func(_ *testing.T, r *rig, _ *conn, _ *httptest.Server) {
			r.idle.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var server *httptest.Server
			w := newWorker(t, nothing, func(s *httptest.Server) {
				s.TLS, server = new(tls.Config), s
			})
			r := setup(t, &tls.Config{InsecureSkipVerify: true})
			r.requireOK(t, w.URL)
			c, before := r.idle.all.Front().Value.(*conn), r.writes.Load()
			end(t, r, c, server)
			require.True(t, isClosed(c))
			require.Equal(t, before, r.writes.Load())
		})
	}
}
