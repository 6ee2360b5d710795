package callbacks

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks/internal/transport"
)

func TestHeadersAndAuth(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outbound asyncflow.Outbound
		want     map[string]string
	}{
		"headers": {asyncflow.Outbound{Headers: map[string]string{"x-api-key": "k",
			"authorization": "Token t"}}, map[string]string{"X-Api-Key": "k",
			"Authorization": "Token t"}},
		"bearer": {asyncflow.Outbound{Auth: asyncflow.EndpointAuth{Kind: "bearer", Token: "t"}},
			map[string]string{"Authorization": "Bearer t"}},
		"basic": {asyncflow.Outbound{Auth: asyncflow.EndpointAuth{Kind: "basic",
			Username: "Aladdin", Password: "open sesame"}},
			// of RFC 7617
			map[string]string{"Authorization": "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorker(t, reply(200, ""))
			r := setup(t)
			for range 2 { // the settings are opened once and kept
				o := r.Send(t.Context(), deliveryWith(t, w.url, c.outbound))
				require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
			}
			for _, got := range w.all() {
				for name, value := range c.want {
					require.Equal(t, []string{value}, got.Header[name])
				}
				require.Equal(t, []string{"application/json"}, got.Header["Content-Type"])
				require.Equal(t, "asyncflow/1.2.3", got.UserAgent())
			}
			plain := r.Send(t.Context(), deliveryTo(w.url))
			require.Equal(t, asyncflow.OutcomeDone, plain.Kind)
			require.Empty(t, w.all()[2].Header["Authorization"], "another endpoint has none of it")
		})
	}
}

// The trace of a request is its header: that of the attempt, else that of the task, if there is one
// task; unless the endpoint sets that header.
func TestTraceHeader(t *testing.T) {
	t.Parallel()
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	const attempt = "00-8f2c1d0e5b7a49c3a1f06de2b4c8d913-3b9d5c7e1f2a4860-01"
	w := newWorker(t, reply(200, ""))
	r := setup(t)
	own := asyncflow.Outbound{Headers: map[string]string{"Traceparent": "mine"}}
	sent := [][]asyncflow.Delivery{{deliveryTo(w.url)}, {deliveryWith(t, w.url, own)},
		deliveriesTo(w.url, 2), {deliveryTo(w.url)}, {deliveryTo(w.url)}, deliveriesTo(w.url, 2)}
	sent[4][0].Traceparent = attempt
	sent[5][0].RequestTrace = attempt
	for i, all := range sent {
		if i != 3 {
			all[0].Lease.Options.Trace = trace
		}
		r.Sender.Send(t.Context(), all)
	}
	for i, want := range [][]string{{trace}, {"mine"}, nil, nil, {attempt}, {attempt}} {
		require.Equal(t, want, w.all()[i].Header.Values("Traceparent"), i)
	}
	for i, all := range w.all() {
		require.Equal(t, i == 4, strings.Contains(string(all.body), `"traceparent":"`+attempt+`"`), i)
	}
}

// Settings that were stored unchecked still frame no request, and no value spans lines.
func TestSettingsHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	r := setup(t)
	for name, why := range map[string]string{"Host": "not for callers", "X-Value": "field value"} {
		t.Run(name, func(t *testing.T) {
			d := deliveryTo(w.url)
			to, err := r.openAnew(d.Tenant, d.Endpoint)
			require.NoError(t, err)
			to.settings = &settings{headers: transport.Headers{{Name: name, Value: "a\nb"}}}
			_, err = r.post(t.Context(), newLimit(ample), d.Endpoint, to,
				message{id: "id", at: d.At})
			require.ErrorContains(t, err, why)
		})
	}
	require.Zero(t, r.dialled.Load())
}

// A worker that repeats what it was sent doesn't reveal it: its error is stored and logged.
func TestErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(500)
		fmt.Fprint(rw, r.Header["X-Api-Key"], r.Header["Authorization"])
	})
	for _, auth := range []asyncflow.EndpointAuth{
		{Kind: "bearer", Token: "swordfish-1"},
		{Kind: "basic", Username: "me", Password: "swordfish-1"},
	} {
		t.Run(string(auth.Kind), func(t *testing.T) {
			d := deliveryWith(t, w.url,
				asyncflow.Outbound{Headers: map[string]string{"X-Api-Key": "swordfish-2"},
					Auth: auth})
			o := setup(t).Send(t.Context(), d)
			require.Equal(t, 500, o.Status)
			require.Contains(t, o.Error, "********")
			require.NotContains(t, o.Error, "swordfish")
			require.NotContains(t, o.Error, "bWU6c3dvcmRmaXNoLTE=", "the base64 of me:swordfish-1")
		})
	}
}

// Settings that were sealed for another endpoint, or for another purpose, don't open.
func TestOutboundIsTiedToItsEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	d := deliveryWith(t, w.url, asyncflow.Outbound{Headers: map[string]string{"X": "swordfish"}})
	other := deliveryTo(w.url)
	other.Endpoint.ID, other.Endpoint.Outbound = "e2", d.Endpoint.Outbound
	secret := deliveryTo(w.url)
	secret.Endpoint.Outbound = secret.Endpoint.Secrets[0].Sealed
	for _, d := range []asyncflow.Delivery{other, secret} {
		o := setup(t).Send(t.Context(), d)
		require.Contains(t, o.Error, "ASYNCFLOW_SECRET is not the one")
	}
	require.Empty(t, w.all())
}

func TestCustomAuthority(t *testing.T) {
	t.Parallel()
	ours, others := newAuthority(t, "ours"), newAuthority(t, "others")
	w := newWorker(t, reply(200, ""), func(s *httptest.Server) { s.TLS = ours.server() })
	r := setup(t)
	send := func(ca string) asyncflow.Outcome {
		return r.Send(t.Context(),
			deliveryWith(t, w.url, asyncflow.Outbound{TLS: asyncflow.EndpointTLS{CA: ca}}))
	}
	require.Equal(t, asyncflow.OutcomeDone, send(ours.pem).Kind)
	require.Contains(t, send(others.pem).Error, "certificate")
	require.Contains(t, r.Send(t.Context(), deliveryTo(w.url)).Error, "certificate",
		"the system's authorities don't count it")
	require.Equal(t, asyncflow.OutcomeDone, send(others.pem+ours.pem).Kind)
	require.Len(t, w.all(), 2)
}

// A server that asks for a client certificate sees the endpoint's own, and no other.
func TestClientCertificate(t *testing.T) {
	t.Parallel()
	servers, clients, others := newAuthority(t, "servers"), newAuthority(t, "clients"),
		newAuthority(t, "others")
	var names sync.Map
	w := newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		names.Store(r.TLS.PeerCertificates[0].Subject.CommonName, true)
		reply(200, "")(rw, r)
	}, func(s *httptest.Server) {
		s.TLS = servers.server()
		s.TLS.ClientAuth, s.TLS.ClientCAs = tls.RequireAndVerifyClientCert, clients.pool()
	})
	r := setup(t)
	send := func(cert, key string) asyncflow.Outcome {
		return r.Send(t.Context(),
			deliveryWith(t, w.url,
				asyncflow.Outbound{TLS: asyncflow.EndpointTLS{CA: servers.pem, Certificate: cert,
					Key: key}}))
	}
	require.Contains(t, send("", "").Error, "certificate required")
	foreign := send(others.issue("foreign"))
	require.Equal(t, asyncflow.OutcomeFailed, foreign.Kind)
	require.Empty(t, w.all())
	for _, name := range []string{"a", "b", "a"} {
		o := send(clients.issue(name))
		require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
	}
	seen := map[any]bool{}
	names.Range(func(name, _ any) bool { seen[name] = true; return true })
	require.Equal(t, map[any]bool{"a": true, "b": true}, seen,
		"connections of one certificate serve no other")
}

// Endpoints with the same certificates share connections. The idle connections of an evicted route
// are closed.
func TestRoutesAreSharedAndBounded(t *testing.T) {
	t.Parallel()
	servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
	closed := make(chan string, 1)
	w := newWorker(t, reply(200, ""), func(s *httptest.Server) {
		s.TLS = servers.server()
	})
	r := setup(t)
	cert, key := clients.issue("a")
	shared := asyncflow.EndpointTLS{CA: servers.pem, Certificate: cert, Key: key}
	for i := range 5 {
		d := deliveryTo(w.url)
		d.Endpoint.ID = fmt.Sprint("e", i)
		secret, err := testKeys(t, nodeSecret).SigningSecret(testSecret, d.Endpoint.ID, d.At)
		require.NoError(t, err)
		d.Endpoint.Secrets = []asyncflow.SigningSecret{secret}
		d.Endpoint.Outbound, err = testKeys(t,
			nodeSecret).SealOutbound(asyncflow.Outbound{TLS: shared}, d.Endpoint.ID)
		require.NoError(t, err)
		o := r.Send(t.Context(), d)
		require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
	}
	require.Equal(t, int64(1), w.connections.Load(), "one connection serves all five")
	require.Equal(t, 1, r.routes.made.audit(t), "one route serves all five")

	// The idle connection of a route is closed when the route is evicted.
	listener, err := tls.Listen("tcp", "127.0.0.1:0", servers.server())
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		buffer := make([]byte, 64<<10)
		conn.Read(buffer)
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		_, err = conn.Read(buffer)
		closed <- fmt.Sprint(err)
	}()
	o := r.Send(t.Context(),
		deliveryWith(t, "https://"+listener.Addr().String(), asyncflow.Outbound{TLS: shared}))
	require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
	for i := range 50 {
		padding := strings.Repeat(fmt.Sprintln(i), 20_000)
		other := asyncflow.EndpointTLS{CA: servers.pem + padding}
		_, err := r.routes.to("acme", certificates{EndpointTLS: other})
		require.NoError(t, err)
		r.routes.made.audit(t)
	}
	require.Equal(t, "EOF", <-closed)
}

// A route with certificates dials through the guard, too.
func TestRoutesAreGuarded(t *testing.T) {
	t.Parallel()
	servers := newAuthority(t, "servers")
	w := newWorker(t, reply(200, ""), func(s *httptest.Server) { s.TLS = servers.server() })
	names := newNameServer(t)
	names.set("worker.example.com", "127.0.0.1")
	r := setup(t, func(c *Config) { c.Egress, c.Resolver = asyncflow.Egress{}, names.resolver() })
	url := strings.Replace(w.url, "127.0.0.1", "worker.example.com", 1)
	o := r.Send(t.Context(),
		deliveryWith(t, url, asyncflow.Outbound{TLS: asyncflow.EndpointTLS{CA: servers.pem}}))
	require.Contains(t, o.Error, refusedNetwork)
	require.Zero(t, w.connections.Load())
}

// The bound for idle connections holds for all certificates together: a tenant can use any number
// of them.
func TestConnectionsAreBoundedForAllRoutes(t *testing.T) {
	t.Parallel()
	servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
	w := newWorker(t, reply(200, ""), func(s *httptest.Server) { s.TLS = servers.server() })
	r := setup(t, func(c *Config) { c.Connections = 1 })
	for n := range 10 {
		cert, key := clients.issue(fmt.Sprint("client", n))
		own := asyncflow.EndpointTLS{CA: servers.pem, Certificate: cert, Key: key}
		o := r.Send(t.Context(), deliveryWith(t, w.url, asyncflow.Outbound{TLS: own}))
		require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
		require.Equal(t, min(n+1, 4), r.routes.idle.Len())
	}
	require.Equal(t, int64(10), w.connections.Load(),
		"connections of one certificate serve no other")
}
