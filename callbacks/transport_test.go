package callbacks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// Without the operator's leave, nothing but the public internet is dialled.
func TestGuardRefuses(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"127.0.0.1", "127.8.8.8", "localhost", "[::1]", "0.0.0.0", "[::]", "0.1.2.3",
		"[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::ffff:10.0.0.1]", "[::127.0.0.1]",
		"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1",
		"169.254.169.254", "[::ffff:169.254.169.254]", "[fe80::1]", "[fc00::1]", "[fd00:ec2::254]",
		"100.64.0.1", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
		"224.0.0.1", "240.0.0.1", "255.255.255.255", "[ff02::1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[2001:db8::1]",
	} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(scheme+" "+host, func(t *testing.T) {
				t.Parallel()
				r := setup(t, func(c *Config) { c.AllowPrivate = false })
				d := deliveryTo(scheme + "://" + host + "/")
				d.Timeout = 10 * time.Second
				o := r.Send(t.Context(), d)
				require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
				require.Zero(t, o.Status)
				require.Contains(t, o.Error, "a network that deliveries must not reach")
				require.NotContains(t, o.Error, "permitted", "which address it is, is nobody's business")
				require.Zero(t, r.dialled.Load())
			})
		}
	}
}

// What is refused isn't even connected to: the first connection that the listener
// ever gets is the test's own.
func TestGuardConnectsToNothing(t *testing.T) {
	t.Parallel()
	for network, hosts := range map[string][]string{
		"tcp4 127.0.0.1:0": {"127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]"},
		"tcp6 [::1]:0":     {"[::1]", "[::]", "localhost"},
	} {
		listener, err := net.Listen(network[:4], network[5:])
		if err != nil && network[:4] == "tcp6" {
			t.Log("no IPv6 on this machine:", err)
			continue
		}
		require.NoError(t, err)
		defer listener.Close()
		_, port, err := net.SplitHostPort(listener.Addr().String())
		require.NoError(t, err)
		for _, host := range hosts {
			o := setup(t, func(c *Config) { c.AllowPrivate = false }).Send(t.Context(), deliveryTo("http://"+host+":"+port))
			require.Contains(t, o.Error, "a network that deliveries must not reach", host)
		}
		own, err := net.Dial(network[:4], listener.Addr().String())
		require.NoError(t, err)
		defer own.Close()
		first, err := listener.Accept()
		require.NoError(t, err)
		defer first.Close()
		require.Equal(t, own.LocalAddr().String(), first.RemoteAddr().String())
	}
}

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
		r.transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
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
	r.transport.TLSClientConfig.RootCAs = roots
}

func TestTLS(t *testing.T) {
	t.Parallel()
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
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
			r.transport.TLSClientConfig = new(tls.Config)
			trust(r, server)
			for range 10 {
				require.Equal(t, asyncflow.OutcomeDone, r.Send(t.Context(), deliveryTo(w.url)).Kind)
			}
			require.Len(t, w.all(), 10)
			require.Equal(t, name, w.all()[0].Proto)
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
	r.transport.TLSClientConfig = new(tls.Config)
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
	_, can := newTransport(Config{}, nil).(interface{ CloseIdleConnections() })
	require.False(t, can)
}
