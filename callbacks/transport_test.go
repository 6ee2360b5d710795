package callbacks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// The environment of this test names a proxy (see TestMain).
func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	request, err := http.NewRequest(http.MethodPost, "http://worker.test", nil)
	require.NoError(t, err)
	proxy, err := http.ProxyFromEnvironment(request)
	require.NoError(t, err)
	require.NotNil(t, proxy, "the environment does name a proxy")

	for _, url := range []string{"http://worker.test", "https://worker.test"} {
		r := setup(t)
		var dialled []string
		r.transport.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled = append(dialled, address)
			return new(net.Dialer).DialContext(ctx, network, w.url[len("http://"):])
		}
		r.Send(t.Context(), deliveryTo(url))
		require.Equal(t, []string{"worker.test:" + map[string]string{"http:": "80", "https": "443"}[url[:5]]}, dialled)
	}
	require.Len(t, w.all(), 1)
	require.Equal(t, "/", w.all()[0].RequestURI)
}

// trust makes the rig trust the certificates of httptest.
func trust(r *rig, s *httptest.Server) {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	r.transport.tls.RootCAs = roots
}

func TestTLS(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1 only": false, "HTTP/2 too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var server *httptest.Server
			w := newWorker(t, reply(200, `{"output":1}`), func(s *httptest.Server) {
				server = s
				s.EnableHTTP2 = http2
				s.TLS = new(tls.Config)
			})
			r := setup(t)
			o := r.Send(t.Context(), deliveryTo(w.url))
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Contains(t, o.Error, "certificate")
			require.Empty(t, w.all(), "nothing is said to a worker that isn't known")

			r = setup(t)
			r.transport.tls = new(tls.Config)
			trust(r, server)
			for range 10 {
				require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), deliveryTo(w.url)).Kind)
			}
			require.Len(t, w.all(), 10)
			require.Equal(t, "HTTP/1.1", w.all()[0].Proto)
			require.Equal(t, int64(1), r.dialled.Load())
		})
	}
}

// A certificate for another name doesn't count.
func TestTLSWrongName(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	w := newWorker(t, reply(200, ""), func(s *httptest.Server) { server, s.TLS = s, new(tls.Config) })
	r := setup(t)
	r.transport.tls = new(tls.Config)
	trust(r, server)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	o := r.Send(t.Context(), deliveryTo("https://localhost:"+port))
	require.Contains(t, o.Error, "certificate is valid for")
	require.Empty(t, w.all())
}

// go-retryablehttp closes idle connections after each failure, if it can.
func TestTransportCannotBeEmptied(t *testing.T) {
	t.Parallel()
	_, can := any(newTransport(Config{}, nil, newIdle(Config{}))).(interface{ CloseIdleConnections() })
	require.False(t, can)
}

// A request that can't be written whole fails, and doesn't wait for its answer to the
// end.
func TestBodyOfAnotherLength(t *testing.T) {
	t.Parallel()
	at := listen(t, "http", tls.Certificate{}, waitForClose)
	r := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	for _, length := range []int64{10, 2 * inOneGo} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, at, strings.NewReader("x"))
		require.NoError(t, err)
		req.ContentLength = length
		_, err = r.transport.RoundTrip(req)
		require.ErrorContains(t, err, "with Body length 1")
		require.Empty(t, r.transport.idle.by)
	}
}
