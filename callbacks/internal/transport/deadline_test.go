package transport

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The deadline of a request doesn't apply to the next one on its connection, which may have none.
func TestLimitOfTheLastRequest(t *testing.T) {
	t.Parallel()
	cert, pool := goodCertificate(t)
	for _, scheme := range []string{"http", "https"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			at := listen(t, scheme, cert, func(c net.Conn) {
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")(c)
				}
			})
			r := setup(t, trusting(pool))
			r.requireOK(t, at)
			timeIsUp := func() {
				require.NoError(t, r.idle.all.Front().Value.(*conn).SetDeadline(time.Unix(1, 0)))
			}
			timeIsUp()
			r.requireOK(t, at)
			timeIsUp()
			a, err := r.post(t, at, func(r *Request) { r.Deadline = time.Time{} })
			require.NoError(t, err)
			require.Equal(t, 200, a.Status)
			require.EqualValues(t, 1, r.dialled.Load())
		})
	}
}

// Over TLS, too, a worker can't prolong a request by answering a little at a time.
func TestLimitOverTLS(t *testing.T) {
	t.Parallel()
	cert, pool := goodCertificate(t)
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, answer := range map[string]func(net.Conn){
		"no answer": waitForClose, "headers byte by byte": dribble(head+"X: ", "x"),
		"a byte at a time": dribble(head+"\r\n", "x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := listen(t, "https", cert, func(c net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					answer(c)
				}
			})
			r := setup(t, trusting(pool))
			a, err := r.post(t, at, within(short))
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			} else {
				require.ErrorIs(t, a.BodyErr, os.ErrDeadlineExceeded)
			}
		})
	}
}

// stopping is a connection that calls stop as soon as something was read.
type stopping struct {
	*net.TCPConn
	stop context.CancelFunc
}

func (c stopping) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.stop()
	return n, err
}

// The connection of an answer that comes at the very moment when its time is up is closed, whether
// at the deadline or because the node stops.
func TestAnswerAtTheLimit(t *testing.T) {
	t.Parallel()
	for name, atDeadline := range map[string]bool{"deadline": true, "stop": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			closed := make(chan struct{})
			at := listenOnce(t, func(c net.Conn) {
				write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")(c)
				waitForClose(c)
				close(closed)
			})
			r := setup(t, nil)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			request := requestTo(t, at)
			if atDeadline {
				request.Deadline = time.Now().Add(short)
				passed, end := context.WithDeadline(t.Context(), request.Deadline)
				defer end()
				stop = func() { <-passed.Done() }
			}
			r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, address)
				if err != nil {
					return nil, err
				}
				return stopping{c.(*net.TCPConn), stop}, nil
			}
			start := time.Now()
			a, err := r.Post(ctx, request)
			require.True(t, err != nil || a.BodyErr != nil)
			require.Less(t, time.Since(start), ample/2)
			requireSoon(t, "the connection", func() { <-closed })
		})
	}
}
