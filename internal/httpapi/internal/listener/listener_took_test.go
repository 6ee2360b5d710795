//go:build linux

package listener

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// pair returns both sides of a connection.
func pair(t *testing.T) (server *Conn, client *net.TCPConn) {
	t.Helper()
	return connect(t, listen(t, Limits{Max: 1, MaxAnonymous: 1}))
}

func eventually(t *testing.T, c *Conn, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Took(n) }, patience, 20*time.Millisecond)
}

// An answer is there when the client's machine acknowledged all of it.
func TestTook(t *testing.T) {
	t.Parallel()
	t.Run("nothing written", func(t *testing.T) {
		c, _ := pair(t)
		assert.False(t, c.Took(1))
	})
	t.Run("all of it", func(t *testing.T) {
		c, client := pair(t)
		_, err := c.Write([]byte("answer"))
		require.NoError(t, err)
		eventually(t, c, 6)
		assert.False(t, c.Took(7), "nothing since then")
		require.NoError(t, client.CloseWrite())
		_, err = c.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.NoError(t, c.Close())
		assert.True(t, c.Took(6), "it is known after the end, too")
		assert.False(t, c.Took(7))
	})
	t.Run("the server closes first", func(t *testing.T) {
		c, client := pair(t)
		_, err := c.Write([]byte("answer"))
		require.NoError(t, err)
		go func() {
			_, _ = io.Copy(io.Discard, client)
			client.Close()
		}()
		c.Linger()
		require.NoError(t, c.Close())
		assert.True(t, c.Took(6))
	})
	t.Run("more than the client takes", func(t *testing.T) {
		c, client := pair(t)
		require.NoError(t, client.SetReadBuffer(4096))
		part := bytes.Repeat([]byte("x"), 64<<10)
		_, err := c.Write(part[:1])
		require.NoError(t, err)
		for err == nil { // until no buffer takes more
			require.NoError(t, c.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
			_, err = c.Write(part)
		}
		sent := c.Sent()
		require.Positive(t, sent)
		assert.False(t, c.Took(sent))
		require.NoError(t, client.Close()) // resets the connection
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		assert.False(t, c.Took(sent))
		require.NoError(t, c.Close())
		assert.False(t, c.Took(sent))
	})
}
