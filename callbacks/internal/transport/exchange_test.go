package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listenKeeping starts a server that leaves the answer to each request to answer, and keeps a
// connection until the other side closes it.
func listenKeeping(t *testing.T, answer func(net.Conn)) string {
	return listen(t, "http", tls.Certificate{}, func(c net.Conn) {
		for requests := bufio.NewReader(c); ; answer(c) {
			r, err := http.ReadRequest(requests)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
		}
	})
}

// The end of an answer decides whether the connection is kept.
func TestConnectionAfterAnswers(t *testing.T) {
	t.Parallel()
	const ok = "HTTP/1.1 200 OK\r\n"
	const asJSON = "Content-Type: application/json\r\n"
	for name, c := range map[string]struct {
		answer string
		status int
		kept   bool
	}{
		"no body": {ok + "Content-Length: 0\r\n\r\n", 200, true},
		"a body":  {ok + asJSON + "Content-Length: 2\r\n\r\n{}", 200, true},
		"chunks": {ok + asJSON +
			"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", 200, true},
		"a trailer": {ok + asJSON +
			"Trailer: X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n", 200,
			true},
		"202": {"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}", 202, true},
		"204": {"HTTP/1.1 204 No Content\r\n\r\n", 204, true},
		"304": {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", 304, true},
		"500": {"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", 500, true},
		"100 and 103 before": {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: " +
			"x\r\n\r\n" + ok + "Content-Length: 0\r\n\r\n", 200, true},
		"HTTP/1.0, to be kept": {"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: " +
			"0\r\n\r\n", 200, true},
		"HTTP/1.0":          {"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", 200, false},
		"Connection: close": {ok + "Connection: close\r\nContent-Length: 0\r\n\r\n", 200, false},
		"101": {"HTTP/1.1 101 Switching Protocols\r\nConnection: " +
			"Upgrade\r\nUpgrade: x\r\n\r\n", 101, false},
		"a body of 204":        {"HTTP/1.1 204 No Content\r\n\r\nboom", 204, false},
		"more than its length": {ok + "Content-Length: 0\r\n\r\nboom", 200, false},
		"another answer": {ok +
			"Content-Length: 0\r\n\r\nHTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", 200, false},
		"another answer to a body": {ok + asJSON +
			"Content-Length: 2\r\n\r\n{}HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n", 200,
			false},
		"more than anybody reads": {"HTTP/1.1 500 No\r\nContent-Length: 99999\r\n\r\n" +
			strings.Repeat("x", 99999), 500, false},
		"chunks and a length": {ok + asJSON +
			"Content-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 200,
			true},
		"a header that is long": {ok + "Content-Length: 0\r\nX: " + strings.Repeat("x", 60_000) +
			"\r\n\r\n", 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var answered atomic.Int64
			at := listenKeeping(t, func(conn net.Conn) {
				answered.Add(1)
				io.WriteString(conn, c.answer)
			})
			r := setup(t, nil)
			for n := range int64(3) {
				a, err := r.post(t, at)
				require.NoError(t, err)
				require.Equal(t, c.status, a.Status)
				want := int64(1)
				if !c.kept {
					want = n + 1
				}
				require.Equal(t, want, r.dialled.Load())
			}
			require.Equal(t, int64(3), answered.Load())
		})
	}
}

// A worker, or something on the way, closes idle connections: the next request isn't lost on one.
func TestClosedWhileIdle(t *testing.T) {
	t.Parallel()
	cert, pool := goodCertificate(t)
	for name, end := range map[string]func(net.Conn){
		"closed": func(c net.Conn) { c.Close() },
		"reset":  func(c net.Conn) { reset(below(c).Conn) },
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				t.Parallel()
				closed := make(chan bool)
				at := listen(t, scheme, cert, func(c net.Conn) {
					http.ReadRequest(bufio.NewReader(c))
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
					<-closed
					end(c)
					closed <- true
				})
				r := setup(t, trusting(pool))
				for n := range int64(5) {
					r.requireOK(t, at)
					require.Equal(t, n+1, r.dialled.Load())
					closed <- true
					<-closed
					r.waitUntilHeard()
				}
			})
		}
	}
}

// Unasked bytes of a worker are not the answer to the next request, which may be another tenant's.
func TestAnswersNobodyAskedFor(t *testing.T) {
	t.Parallel()
	cert, pool := goodCertificate(t)
	const answer, unasked = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"
	for name, parts := range map[string][]string{"at once": {answer, unasked},
		"later": {answer, "", unasked}} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				t.Parallel()
				next, done := make(chan bool), make(chan bool)
				at := listen(t, scheme, cert, func(c net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
						return
					}
					writeTogether(c, parts[:2]...)
					<-next
					writeTogether(c, parts[2:]...)
					done <- true
					waitForClose(c)
				})
				r := setup(t, trusting(pool))
				for range 3 {
					r.requireOK(t, at)
					next <- true
					<-done
					if len(parts) > 2 {
						r.waitUntilHeard()
					}
				}
				require.Equal(t, int64(3), r.dialled.Load())
			})
		}
	}
}

// A worker may answer before it has read a request, and never read it.
func TestAnswersBeforeTheRequest(t *testing.T) {
	t.Parallel()
	cert, pool := goodCertificate(t)
	for name, c := range map[string]struct {
		size int
		stay bool
	}{
		"large, stays open": {8 << 20, true},
		"large, closes":     {8 << 20, false},
		"small, closes":     {100, false},
		"in one go, closes": {inOneGo, false},
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				t.Parallel()
				over := make(chan struct{})
				defer close(over)
				at := listen(t, scheme, cert, func(conn net.Conn) {
					conn.Read(make([]byte, 10))
					io.WriteString(conn,
						"HTTP/1.1 429 Slow down\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy")
					if c.stay {
						<-over
					}
				})
				r := setup(t, trusting(pool))
				body := bytes.Repeat([]byte("x"), c.size)
				for n := range int64(2) {
					start := time.Now()
					a, err := r.post(t, at, func(r *Request) { r.Body = body })
					require.NoError(t, err)
					require.Equal(t, []any{429, "7", "busy", nil},
						[]any{a.Status, a.RetryAfter(), string(a.Body), a.BodyErr})
					require.Less(t, time.Since(start), ample/2)
					require.Equal(t, n+1, r.dialled.Load(),
						"such a connection is of no further use")
					r.waitUntilHeard() // nobody can know before
				}
			})
		}
	}
}

// lingering is a connection with failed writes that return late.
type lingering struct {
	net.Conn
	returned atomic.Bool
}

func (c *lingering) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		time.Sleep(short)
		c.returned.Store(true)
	}
	return n, err
}

// Nothing of a request goes on after Post, so that its body may be changed.
func TestPostEndsAllWriting(t *testing.T) {
	t.Parallel()
	over := make(chan struct{})
	defer close(over)
	at := listen(t, "http", tls.Certificate{}, func(c net.Conn) {
		c.Read(make([]byte, 10))
		io.WriteString(c, "HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n")
		<-over
	})
	r := setup(t, nil)
	var c lingering
	dial := r.dial
	r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		var err error
		c.Conn, err = dial(ctx, network, address)
		return &c, err
	}
	a, err := r.post(t, at, func(r *Request) { r.Body = make([]byte, 8<<20) })
	require.NoError(t, err)
	require.Equal(t, 413, a.Status)
	require.True(t, c.returned.Load())
}

// Whatever ends requests, and whenever, none gets the answer to another one.
func TestAnswersAreNotMixedUp(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Id")
		for _, part := range []string{"id ", id, strings.Repeat("x", rand.IntN(900))} {
			if rand.IntN(4) == 0 {
				rw.(http.Flusher).Flush() // makes chunks of it
			}
			if rand.IntN(200) == 0 {
				panic(http.ErrAbortHandler)
			}
			io.WriteString(rw, part)
		}
	})
	r := setup(t, nil)
	var done, failed atomic.Int64
	var senders sync.WaitGroup
	for sender := range 20 {
		senders.Go(func() {
			for n := range 100 {
				id := fmt.Sprint(sender*100 + n)
				a, err := r.post(t, w.URL, func(r *Request) {
					r.Headers.Set("X-Id", id)
					if n%2 == 0 {
						within(time.Duration(rand.IntN(3000)) * time.Microsecond)(r)
					}
				})
				if err != nil || a.BodyErr != nil {
					failed.Add(1)
					continue
				}
				done.Add(1)
				assert.Equal(t, "id "+id, strings.TrimRight(string(a.Body), "x"))
			}
		})
	}
	senders.Wait()
	require.Greater(t, done.Load(), int64(500))
	require.Positive(t, failed.Load())
}

// A worker that accepts connections and never answers the TLS handshake delays a request no longer
// than its deadline.
func TestSilenceInTheHandshake(t *testing.T) {
	t.Parallel()
	at := listen(t, "http", tls.Certificate{}, waitForClose)
	at = strings.Replace(at, "http", "https", 1)
	_, err := setup(t, nil).post(t, at, within(short))
	require.ErrorIs(t, err, context.DeadlineExceeded)

	ctx, cancel := context.WithCancel(t.Context())
	defer time.AfterFunc(short, cancel).Stop()
	_, err = setup(t, nil).Post(ctx, requestTo(t, at))
	require.ErrorIs(t, err, context.Canceled)
}

// After "101 Switching Protocols" the connection is no longer HTTP: it must not delay the request.
func TestSwitchingProtocols(t *testing.T) {
	t.Parallel()
	at := listenOnce(t, func(c net.Conn) {
		write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")(c)
		waitForClose(c)
	})
	requireSoon(t, "the request", func() {
		a, err := setup(t, nil).post(t, at)
		assert.NoError(t, err)
		assert.Equal(t, []any{101, 0, nil}, []any{a.Status, len(a.Body), a.BodyErr})
	})
}
