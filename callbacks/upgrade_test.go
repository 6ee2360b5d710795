package callbacks

import (
	"bufio"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// After "101 Switching Protocols" the body is the bare connection, which no longer
// ends with the request: it must not hold the attempt.
func TestSwitchingProtocols(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			http.ReadRequest(bufio.NewReader(c))
			c.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")) // and stays open
		}
	}()
	d := deliveryTo("http://" + listener.Addr().String())
	done := make(chan asyncflow.Outcome, 1)
	go func() { done <- setup(t).Send(t.Context(), d) }()
	select {
	case o := <-done:
		require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
		require.Contains(t, o.Error, "101")
	case <-time.After(2 * ample):
		t.Fatal("the attempt hangs")
	}
}
