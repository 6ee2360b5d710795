package listener

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// patience bounds the wait for what the other side of a connection does.
const patience = 2 * time.Minute

// listen returns a listener that is closed with the test.
func listen(t *testing.T, limits Limits) *Listener {
	t.Helper()
	under, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refusal := func(reason string) []byte { return []byte(reason) }
	l := New(under, limits, refusal, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { l.Close() })
	return l
}

// dial returns the client's side of a new connection.
func dial(t *testing.T, l *Listener) *net.TCPConn {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	require.NoError(t, client.SetDeadline(time.Now().Add(patience)))
	return client.(*net.TCPConn)
}

// connect returns both sides of a new connection.
func connect(t *testing.T, l *Listener) (server *Conn, client *net.TCPConn) {
	t.Helper()
	client = dial(t, l)
	accepted, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { accepted.Close() })
	require.NoError(t, accepted.SetDeadline(time.Now().Add(patience)))
	return accepted.(*Conn), client
}

// ask sends a byte to the server, which reads it: a request is being handled.
func ask(t *testing.T, server *Conn, client *net.TCPConn) {
	t.Helper()
	_, err := client.Write([]byte("?"))
	require.NoError(t, err)
	n, err := server.Read(make([]byte, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// answer sends a byte to the client, which reads it.
func answer(t *testing.T, server *Conn, client *net.TCPConn) {
	t.Helper()
	_, err := server.Write([]byte("!"))
	require.NoError(t, err)
	_, err = io.ReadFull(client, make([]byte, 1))
	require.NoError(t, err)
}

// requireEvicted checks that a connection was closed without a word, and gives nothing to read.
func requireEvicted(t *testing.T, server *Conn, client *net.TCPConn) {
	t.Helper()
	_, err := io.ReadFull(client, make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	n, err := server.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	require.Zero(t, n)
	require.Error(t, server.Close())
}

// A new connection evicts, of those that wait, the one with the oldest last answer. No connection
// is evicted while its request is handled, or after Identify.
func TestEviction(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]Limits{
		"anonymous": {Max: 10, MaxAnonymous: 3},
		"all":       {Max: 3, MaxAnonymous: 3},
	} {
		t.Run(name, func(t *testing.T) {
			l := listen(t, limits)
			s1, c1 := connect(t, l)
			s2, c2 := connect(t, l)
			s3, c3 := connect(t, l)
			ask(t, s1, c1)
			answer(t, s1, c1)
			ask(t, s2, c2)

			s4, c4 := connect(t, l)
			requireEvicted(t, s3, c3) // the first, 1, was answered since; 2 is being handled
			s5, c5 := connect(t, l)
			requireEvicted(t, s1, c1)

			ask(t, s4, c4)
			ask(t, s5, c5)
			refused := dial(t, l)
			next := make(chan net.Conn, 1)
			go func() {
				c, _ := l.Accept() // refuses the connection, and goes on with the next one
				next <- c
			}()
			reason, err := io.ReadAll(refused)
			require.NoError(t, err)
			require.Regexp(t, "^this node has 3 connections( without a token)?; that is its limit$",
				string(reason))

			answer(t, s4, c4)
			s2.Identify()
			answer(t, s2, c2)
			dial(t, l)
			accepted := <-next
			defer accepted.Close()
			if limits.Max > 3 {
				ask(t, s4, c4) // there is room: 2 doesn't count any more
				answer(t, s4, c4)
			} else {
				requireEvicted(t, s4, c4)
			}
			for _, pair := range []struct {
				server *Conn
				client *net.TCPConn
			}{{s2, c2}, {s5, c5}} {
				answer(t, pair.server, pair.client)
				ask(t, pair.server, pair.client)
			}
		})
	}
}

// Bytes that trickle in don't renew a connection.
func TestTricklingIsNoAnswer(t *testing.T) {
	t.Parallel()
	l := listen(t, Limits{Max: 10, MaxAnonymous: 2})
	s1, c1 := connect(t, l)
	s2, c2 := connect(t, l)
	ask(t, s1, c1) // half a request
	reads := make(chan error, 1)
	go func() {
		_, err := s1.Read(make([]byte, 1))
		reads <- err
	}()
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return s1.waits
	}, patience, time.Millisecond)
	connect(t, l)
	require.ErrorIs(t, <-reads, net.ErrClosed)
	_, err := io.ReadFull(c1, make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	ask(t, s2, c2)
}

// Whatever happens at the same time, the limits hold, and what ends is counted once.
func TestLimitsHold(t *testing.T) {
	t.Parallel()
	const clients, rounds = 8, 100
	limits := Limits{Max: 6, MaxAnonymous: 3}
	l := listen(t, limits)
	holds := func(c *Conn) {
		l.mu.Lock()
		defer l.mu.Unlock()
		assert.LessOrEqual(t, l.open, limits.Max)
		assert.LessOrEqual(t, l.anonymous.Len(), limits.MaxAnonymous)
		assert.False(t, c.left, "a connection is evicted while its request is handled")
	}
	var serving sync.WaitGroup
	serve := func(c *Conn, identify bool) {
		defer c.Close()
		for {
			if _, err := c.Read(make([]byte, 1)); err != nil {
				return
			}
			holds(c)
			if identify {
				c.Identify()
			}
			if _, err := c.Write([]byte("!")); err != nil {
				return
			}
		}
	}
	serving.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { serve(c.(*Conn), n%3 == 0) })
		}
	})
	var calling sync.WaitGroup
	for range clients {
		calling.Go(func() {
			for range rounds {
				c, err := net.Dial("tcp", l.Addr().String())
				if !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, c.SetDeadline(time.Now().Add(patience)))
				for range 3 {
					if _, err = c.Write([]byte("?")); err == nil {
						_, err = c.Read(make([]byte, 1))
					}
					if err != nil { // it was refused or evicted
						var timeout net.Error
						assert.False(t, errors.As(err, &timeout) && timeout.Timeout())
						break
					}
				}
				c.Close()
			}
		})
	}
	calling.Wait()
	require.NoError(t, l.Close())
	serving.Wait()
	assert.Zero(t, l.open)
	assert.Empty(t, l.from)
	assert.Zero(t, l.anonymous.Len())
}
