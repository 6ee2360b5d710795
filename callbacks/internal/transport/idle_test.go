package transport

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pair returns a connection to an address, and its other side.
func pair(t *testing.T, to string) (c *conn, other net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	raw, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	other, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() {
		raw.Close()
		other.Close()
	})
	return newConn(address{hostPort: to}, raw, raw), other
}

func isClosed(c *conn) bool { return c.SetDeadline(time.Time{}) != nil }

// The connection that was used last is used next. Beyond the bounds, the one that is idle longest
// is closed.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	kept := NewIdle(2, 3)
	a1, _ := pair(t, "a")
	a2, _ := pair(t, "a")
	a3, _ := pair(t, "a")
	b1, _ := pair(t, "b")
	c1, _ := pair(t, "c")
	for _, c := range []*conn{a1, a2, a3, b1, c1} {
		kept.put(c)
	}
	require.True(t, isClosed(a1), "of the address there are two others")
	require.True(t, isClosed(a2), "there are three others")
	require.Same(t, a3, kept.take(a3.to))
	require.Nil(t, kept.take(a3.to))
	kept.put(a3)
	a4, _ := pair(t, "a")
	kept.put(a4)
	require.True(t, isClosed(b1))
	require.Same(t, a4, kept.take(a3.to))
	require.Same(t, a3, kept.take(a3.to))
	require.Same(t, c1, kept.take(c1.to))
	require.Empty(t, kept.by)
	require.Zero(t, kept.all.Len())

	kept.put(a3)
	kept.put(c1)
	kept.Close()
	require.True(t, isClosed(a3) && isClosed(c1))
	require.Empty(t, kept.by)
}

// Connections that the other side closed, or on which unasked bytes came, are not used. The sweep
// closes them as well as connections that were idle too long.
func TestIdleConnectionsThatAreNoGood(t *testing.T) {
	t.Parallel()
	for _, take := range []bool{true, false} {
		kept := NewIdle(10, 10)
		good, _ := pair(t, "a")
		closed, other := pair(t, "a")
		other.Close()
		speaking, other := pair(t, "a")
		other.Write([]byte("x"))
		old, _ := pair(t, "a")
		for _, c := range []*conn{good, old, closed, speaking} {
			kept.put(c)
		}
		if take {
			kept.pop(old.to)
			kept.pop(old.to)
			kept.pop(old.to)
			kept.add(speaking)
			kept.add(closed)
			require.Same(t, good, kept.take(good.to))
		} else {
			old.since = old.since.Add(-idleTime)
			kept.sweep()
			require.True(t, isClosed(old))
			require.Same(t, good, kept.take(good.to))
		}
		require.True(t, isClosed(closed) && isClosed(speaking))
		require.Nil(t, kept.take(good.to))
	}
}
