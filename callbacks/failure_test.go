package callbacks

import (
	"context"
	"net"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Each attempt without an answer says why by a code.
func TestFailureCodes(t *testing.T) {
	t.Parallel()
	names := newNameServer(t)
	names.set("private.example.com", "10.0.0.1")
	guarded := setup(t, func(c *Config) {
		c.Egress, c.Resolver = asyncflow.Egress{AllowHTTP: true}, names.resolver()
	})
	open := setup(t, func(c *Config) { c.Resolver = names.resolver() })
	tokens := newTokenServer(t)
	down := tokens.outbound()
	down.Auth.TokenURL = "http://" + closedAddress(t)
	secure := newWorker(t, reply(200, ""),
		func(s *httptest.Server) { s.TLS = newAuthority(t, "others").server() })
	for want, c := range map[asyncflow.FailureCode]struct {
		*rig
		asyncflow.Delivery
	}{
		asyncflow.FailureTimeout:        {open, deliveryTo(newRawWorker(t, waitForClose).url)},
		asyncflow.FailureNoConnection:   {open, deliveryTo("http://" + closedAddress(t))},
		asyncflow.FailureConnectionLost: {open, deliveryTo(newRawWorker(t, reset).url)},
		asyncflow.FailureDNS:            {open, deliveryTo("http://nobody.example.com")},
		asyncflow.FailureTLS:            {open, deliveryTo(secure.url)},
		asyncflow.FailureEgress:         {guarded, deliveryTo("http://private.example.com")},
		asyncflow.FailureLogin:          {open, deliveryWith(t, secure.url, down)},
		asyncflow.FailureOther: {open, deliveryTo(newRawWorker(t, func(c net.Conn) {
			c.Write([]byte("no HTTP\r\n\r\n"))
		}).url)},
	} {
		t.Run(want.String(), func(t *testing.T) {
			if want == asyncflow.FailureTimeout {
				c.Timeout = short
			}
			o := c.Send(t.Context(), c.Delivery)
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Equal(t, want.String(), o.Failure.String(), o.Error)
		})
	}
	require.Equal(t, asyncflow.FailureNoConnection, sendToNowhere(t).Failure)
	plain := setup(t, func(c *Config) { c.Egress.AllowHTTP = false })
	require.Equal(t, asyncflow.FailureEgress,
		plain.Send(t.Context(), deliveryTo("http://x")).Failure)
	gone := newRawWorker(t, func(c net.Conn) { c.Close() })
	require.Equal(t, asyncflow.FailureConnectionLost,
		open.Send(t.Context(), deliveryTo(gone.url)).Failure)
}

// sendToNowhere sends to an address to which no connection opens within the attempt's time.
func sendToNowhere(t *testing.T) asyncflow.Outcome {
	dialer := net.Dialer{ControlContext: func(
		ctx context.Context, _, _ string, _ syscall.RawConn,
	) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	open := asyncflow.Egress{AllowHTTP: true, AllowPrivate: true}
	s := newSender(Config{PublicURL: "https://tasks.example.com", Egress: open},
		testKeys(t, nodeSecret), dialer.DialContext)
	t.Cleanup(s.routes.idle.Close)
	d := deliveryTo("http://" + closedAddress(t))
	d.Timeout = short
	return s.Send(t.Context(), []asyncflow.Delivery{d})[0]
}
