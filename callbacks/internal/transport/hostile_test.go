package transport

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A certificate is accepted while it is valid only, and TLS below 1.2 is not.
func TestTLSOfToday(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		from, until time.Time
		version     uint16
		says        string // "": it arrives
	}{
		"good": {now.Add(-time.Hour), now.Add(time.Hour), tls.VersionTLS13, ""},
		"expired": {now.Add(-2 * time.Hour), now.Add(-time.Hour), tls.VersionTLS13,
			"certificate has expired or is not yet valid"},
		"too soon": {now.Add(time.Hour), now.Add(2 * time.Hour), tls.VersionTLS13,
			"certificate has expired or is not yet valid"},
		"TLS 1.2": {now.Add(-time.Hour), now.Add(time.Hour), tls.VersionTLS12, ""},
		"TLS 1.1": {now.Add(-time.Hour), now.Add(time.Hour), tls.VersionTLS11, "protocol version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cert, pool := certificate(t, c.from, c.until)
			w := newWorker(t, nothing, func(s *httptest.Server) {
				s.TLS = &tls.Config{Certificates: []tls.Certificate{cert},
					MinVersion: tls.VersionTLS10, MaxVersion: c.version}
			})
			r := setup(t, trusting(pool))
			_, err := r.post(t, w.URL)
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			require.Empty(t, w.all())
		})
	}
}

// A worker that redirects in circles gets one request.
func TestRedirectLoop(t *testing.T) {
	t.Parallel()
	var w *worker
	w = newWorker(t, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, w.URL+"/again", http.StatusTemporaryRedirect)
	})
	a, err := setup(t, nil).post(t, w.URL)
	require.NoError(t, err)
	require.Equal(t, 307, a.Status)
	require.Len(t, w.all(), 1)
}

// Interim answers without an end are no answer.
func TestEndlessBeginnings(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(net.Conn){
		"100": writeForEver("", "HTTP/1.1 100 Continue\r\n\r\n"),
		"102": writeForEver("", "HTTP/1.1 102 Processing\r\n\r\n"),
		"103": writeForEver("", "HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"),
		"big": writeForEver("",
			"HTTP/1.1 103 Early Hints\r\nLink: <"+strings.Repeat("x", 10_000)+">\r\n\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := setup(t, nil)
			_, err := r.post(t, listenOnce(t, answer), within(time.Second))
			require.Error(t, err)
			require.Less(t, r.read.Load(), int64(1<<20), "bytes read from a hostile worker")
		})
	}
}

// A worker that speaks HTTP/2 unasked makes one request fail.
func TestHTTP2Unasked(t *testing.T) {
	t.Parallel()
	const settings, goAway = "\x00\x00\x00\x04\x00\x00\x00\x00\x00",
		"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	for name, frames := range map[string]string{"frames": settings + goAway,
		"frames without an end": strings.Repeat(settings, 100_000)} {
		for _, scheme := range []string{"http", "https"} {
			t.Run(name+", "+scheme, func(t *testing.T) {
				t.Parallel()
				cert, pool := goodCertificate(t)
				at := listen(t, scheme, cert, func(c net.Conn) {
					if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
						io.WriteString(c, frames)
						waitForClose(c)
					}
				})
				r := setup(t, trusting(pool))
				_, err := r.post(t, at, within(time.Second))
				require.Error(t, err)
				require.Less(t, r.read.Load(), int64(1<<20))
			})
		}
	}
}

// A worker that speaks only HTTP/2 learns that it isn't offered, and gets no request.
func TestHTTP2Only(t *testing.T) {
	t.Parallel()
	cert, pool := goodCertificate(t)
	w := newWorker(t, nothing, func(s *httptest.Server) {
		s.TLS = &tls.Config{Certificates: []tls.Certificate{cert},
			GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				assert.Equal(t, []string{"http/1.1"}, hello.SupportedProtos)
				return &tls.Config{Certificates: []tls.Certificate{cert},
					NextProtos: []string{"only-another"}}, nil
			}}
	})
	_, err := setup(t, trusting(pool)).post(t, w.URL)
	require.ErrorContains(t, err, "no application protocol")
	require.Empty(t, w.all())
}
