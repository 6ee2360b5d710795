package callbacks

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

// certificate returns one for 127.0.0.1 of its own authority, good from a time to another.
func certificate(t *testing.T, from, until time.Time) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "worker"}, NotBefore: from, NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	raw, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pool
}

// A certificate counts in its time only, and TLS below 1.2 doesn't.
func TestTLSOfToday(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		from, until time.Time
		version     uint16
		says        string // "": it arrives
	}{
		"good":     {now.Add(-time.Hour), now.Add(time.Hour), tls.VersionTLS13, ""},
		"expired":  {now.Add(-2 * time.Hour), now.Add(-time.Hour), tls.VersionTLS13, "certificate has expired or is not yet valid"},
		"too soon": {now.Add(time.Hour), now.Add(2 * time.Hour), tls.VersionTLS13, "certificate has expired or is not yet valid"},
		"TLS 1.2":  {now.Add(-time.Hour), now.Add(time.Hour), tls.VersionTLS12, ""},
		"TLS 1.1":  {now.Add(-time.Hour), now.Add(time.Hour), tls.VersionTLS11, "protocol version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cert, pool := certificate(t, c.from, c.until)
			w := newWorker(t, reply(200, ""), func(s *httptest.Server) {
				s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS10, MaxVersion: c.version}
			})
			r := setup(t)
			r.transport.tls = &tls.Config{RootCAs: pool}
			o := r.Send(t.Context(), deliveryTo(w.url))
			if c.says == "" {
				require.Equal(t, asyncflow.OutcomeDone, o.Kind, o.Error)
				return
			}
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Contains(t, o.Error, c.says)
			require.Empty(t, w.all())
		})
	}
}

// A worker that sends its callers in circles gets one request a delivery.
func TestRedirectLoop(t *testing.T) {
	t.Parallel()
	var w *worker
	w = newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, w.url+"/again", http.StatusTemporaryRedirect)
	})
	o := setup(t).Send(t.Context(), deliveryTo(w.url))
	require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
	require.Equal(t, 307, o.Status)
	require.Len(t, w.all(), 1)
}

// Answers that say there is more to come, without an end, are no answer.
func TestEndlessBeginnings(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(net.Conn){
		"100": writeForEver("", "HTTP/1.1 100 Continue\r\n\r\n"),
		"102": writeForEver("", "HTTP/1.1 102 Processing\r\n\r\n"),
		"103": writeForEver("", "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"),
		"big": writeForEver("", "HTTP/1.1 103 Early Hints\r\nLink: <"+strings.Repeat("x", 10_000)+">\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t)
			o := sendOnce(t, r, newRawWorker(t, answer), time.Second)
			require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
			require.Zero(t, o.Status)
			require.NotEmpty(t, o.Error)
			require.Less(t, r.read.Load(), int64(1<<20), "bytes read from a hostile worker")
		})
	}
}

// A worker that speaks HTTP/2, which it wasn't asked for, costs one failed attempt.
func TestHTTP2Unasked(t *testing.T) {
	t.Parallel()
	const settings, goAway = "\x00\x00\x00\x04\x00\x00\x00\x00\x00", "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for name, frames := range map[string]string{"frames": settings + goAway, "frames without an end": strings.Repeat(settings, 100_000)} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				t.Parallel()
				cert, pool := certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
				at := listen(t, scheme, cert, func(c net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						io.WriteString(c, frames)
						waitForClose(c)
					}
				})
				r := setup(t)
				r.transport.tls = &tls.Config{RootCAs: pool}
				d := deliveryTo(at)
				d.Timeout = time.Second
				o := r.Send(t.Context(), d)
				require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
				require.Zero(t, o.Status)
				require.NotEmpty(t, o.Error)
				require.Less(t, r.read.Load(), int64(1<<20))
			})
		}
	}
}

// Workers that speak nothing but HTTP/2 hear that it isn't offered, before they get anything.
func TestHTTP2Only(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	w := newWorker(t, reply(200, ""), func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{cert}, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			assert.Equal(t, []string{"http/1.1"}, hello.SupportedProtos)
			return &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"only-another"}}, nil
		}}
	})
	r := setup(t)
	r.transport.tls = &tls.Config{RootCAs: pool}
	o := r.Send(t.Context(), deliveryTo(w.url))
	require.Equal(t, asyncflow.OutcomeFailed, o.Kind)
	require.Contains(t, o.Error, "no application protocol")
	require.Empty(t, w.all())
}
