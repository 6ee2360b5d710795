package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// The environment of this test names a proxy (see TestMain), which is ignored.
func TestProxyOfTheEnvironmentIsIgnored(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nothing)
	request, err := http.NewRequest(http.MethodPost, "http://worker.test", nil)
	require.NoError(t, err)
	proxy, err := http.ProxyFromEnvironment(request)
	require.NoError(t, err)
	require.NotNil(t, proxy, "the environment does name a proxy")

	for _, url := range []string{"http://worker.test", "https://worker.test"} {
		t.Run(url, func(t *testing.T) {
			r := setup(t, nil)
			var dialled []string
			r.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialled = append(dialled, address)
				return new(net.Dialer).DialContext(ctx, network, w.URL[len("http://"):])
			}
			r.post(t, url)
			require.Equal(t,
				[]string{"worker.test:" + map[string]string{"http:": "80",
					"https": "443"}[url[:5]]}, dialled)
		})
	}
	require.Len(t, w.all(), 1)
	require.Equal(t, "/", w.all()[0].RequestURI)
}

// trustingServer returns a client's TLS configuration that trusts a server of httptest.
func trustingServer(s *httptest.Server) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return trusting(roots)
}

func TestTLS(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1 only": false, "HTTP/2 too": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var server *httptest.Server
			w := newWorker(t, nothing, func(s *httptest.Server) {
				server = s
				s.EnableHTTP2 = http2
				s.TLS = new(tls.Config)
			})
			_, err := setup(t, nil).post(t, w.URL)
			require.ErrorContains(t, err, "certificate")
			require.Empty(t, w.all(), "nothing is said to a worker that isn't known")

			r := setup(t, trustingServer(server))
			for range 10 {
				r.requireOK(t, w.URL)
			}
			require.Len(t, w.all(), 10)
			require.Equal(t, "HTTP/1.1", w.all()[0].Proto)
			require.Equal(t, int64(1), r.dialled.Load())
		})
	}
}

// A certificate for another name is refused.
func TestTLSWrongName(t *testing.T) {
	t.Parallel()
	var server *httptest.Server
	w := newWorker(t, nothing, func(s *httptest.Server) { server, s.TLS = s, new(tls.Config) })
	r := setup(t, trustingServer(server))
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	_, err = r.post(t, "https://localhost:"+port)
	require.ErrorContains(t, err, "certificate is valid for")
	require.Empty(t, w.all())
}

// go-retryablehttp closes idle connections after each failure, if it can.
func TestTransportCannotBeEmptied(t *testing.T) {
	t.Parallel()
	type emptied interface{ CloseIdleConnections() }
	for _, one := range []any{new(Transport), new(exchange)} {
		_, can := one.(emptied)
		require.False(t, can)
	}
}
