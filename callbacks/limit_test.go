package callbacks

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// The time limit of a request doesn't hold for the next one on its connection, which may have
// none of its own.
func TestLimitOfTheLastRequest(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
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
			r := setup(t)
			r.transport.tls = &tls.Config{RootCAs: pool}
			require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), deliveryTo(at)).Kind)
			timeIsUp := func() {
				require.NoError(t, r.transport.idle.all.Front().Value.(*conn).SetDeadline(time.Unix(1, 0)))
			}
			timeIsUp()
			require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), deliveryTo(at)).Kind)
			timeIsUp()
			unaltered := func(*http.Request, []byte) error { return nil }
			require.Equal(t, asyncflow.OutcomeDone, r.Rehearse(t.Context(), []asyncflow.Delivery{deliveryTo(at)}, unaltered)[0].Kind)
			require.EqualValues(t, 1, r.dialled.Load())
		})
	}
}

// Over TLS, too, a worker can't make a delivery last by saying a little at a time.
func TestLimitOverTLS(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
	for name, answer := range map[string]func(net.Conn){
		"no answer": waitForClose, "headers byte by byte": dribble(head+"X: ", "x"), "a byte at a time": dribble(head+"\r\n", "x"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := listen(t, "https", cert, func(c net.Conn) {
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					answer(c)
				}
			})
			r := setup(t)
			r.transport.tls = &tls.Config{RootCAs: pool}
			d := deliveryTo(at)
			d.Timeout = short
			requireOutcome(t, asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "no answer within " + short.String()}, r.Send(t.Context(), d))
		})
	}
}

// late is a transport whose answers come when the time of their request is up.
type late struct{ http.RoundTripper }

func (l late) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	<-req.Context().Done()
	return resp, err
}

// The connection of an answer that comes in the very moment when time is up is closed, though
// its node goes on.
func TestAnswerAtTheLimit(t *testing.T) {
	t.Parallel()
	closed := make(chan struct{})
	at := listen(t, "http", tls.Certificate{}, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")(c)
			waitForClose(c)
			close(closed)
		}
	})
	r := setup(t)
	r.client.HTTPClient.Transport = late{r.transport}
	d := deliveryTo(at)
	d.Timeout = short
	node, stop := context.WithCancel(t.Context())
	defer stop()
	require.Equal(t, "no answer within "+short.String(), r.Send(node, d).Error)
	select {
	case <-closed:
	case <-time.After(ample / 2):
		require.Fail(t, "the connection is still open")
	}
}
