package transport

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A request is written as net/http writes it, except for the order of headers.
func TestWriteRequest(t *testing.T) {
	t.Parallel()
	for _, at := range []string{
		"http://worker.test", "https://worker.test:8443/", "http://worker.test?q",
		"http://worker.test/a%2Fb/ü?x=1&y=%20", "http://[::1]:80/a b", "http://worker.test//a",
	} {
		t.Run(at, func(t *testing.T) {
			for _, body := range []string{"", "{}", strings.Repeat("long ", 10_000)} {
				req, err := http.NewRequest(http.MethodPost, at, strings.NewReader(body))
				require.NoError(t, err)
				req.Header = http.Header{
					"User-Agent":   {"asyncflow/1.2.3"},
					"Content-Type": {"application/json"},
					"X-Twice":      {"one", "two"},
					"X-Empty":      {""},
				}
				var theirs bytes.Buffer
				require.NoError(t, req.Write(&theirs))
				ours := Request{URL: req.URL, Body: []byte(body), Headers: Headers{
					{"User-Agent", "asyncflow/1.2.3"}, {"Content-Type", "application/json"},
					{"X-Twice", "one"}, {"X-Empty", ""}, {"X-Twice", "two"},
				}}
				require.Equal(t, parsed(t, theirs.Bytes()), parsed(t, sent(t, ours)))
			}
		})
	}
}

// sent returns the bytes of a request.
func sent(t *testing.T, r Request) []byte {
	target, err := r.check()
	require.NoError(t, err)
	var ours bytes.Buffer
	ours.Write(r.appendHead(nil, target, int64(len(r.Body))))
	ours.Write(r.Body)
	return ours.Bytes()
}

// parsedRequest is a request as a server reads it.
type parsedRequest struct {
	method, uri, proto, host, body string
	header                         http.Header
	length                         int64
}

func parsed(t *testing.T, raw []byte) parsedRequest {
	r := bufio.NewReader(bytes.NewReader(raw))
	req, err := http.ReadRequest(r)
	require.NoError(t, err)
	body, err := io.ReadAll(req.Body)
	require.NoError(t, err)
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Empty(t, rest, "after the request")
	return parsedRequest{req.Method, req.RequestURI, req.Proto, req.Host, string(body),
		req.Header, req.ContentLength}
}

// User-Agent, which some servers require, is never missing.
func TestUserAgent(t *testing.T) {
	t.Parallel()
	r := requestTo(t, "http://worker.test")
	r.Headers, r.Body = Headers{{"X-A", "1"}}, nil
	want := http.Header{"X-A": {"1"}, "User-Agent": {"asyncflow"}, "Content-Length": {"0"}}
	require.Equal(t, want, parsed(t, sent(t, r)).header)
}

// A caller's header never frames a request, and never spans lines: the request is refused before a
// connection is made.
func TestHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorker(t, nothing)
	r := setup(t, nil)
	for name, why := range map[string]string{
		"Host":              "not for callers",
		"content-length":    "not for callers",
		"Transfer-Encoding": "not for callers",
		"trailer":           "not for callers",
		"A\r\nB":            "field name",
		"X-Value":           "field value",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.post(t, w.URL, func(r *Request) { r.Headers.Set(name, "a\nb") })
			require.ErrorContains(t, err, why)

			req, err := http.NewRequest(http.MethodPost, w.URL, strings.NewReader("x"))
			require.NoError(t, err)
			req.Header[name] = []string{"a\nb"}
			_, err = r.RoundTrip(req)
			require.ErrorContains(t, err, why)
		})
	}
	require.Empty(t, w.all())
	require.Zero(t, r.dialled.Load())
}

// A body that is longer or shorter than announced fails. Never more than the announced length is
// sent.
func TestBodiesOfAnotherLength(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		announced, has int64
		says           string
	}{
		{0, 1, "Content-Length 0 with Body length 1"}, // as http.NewRequest leaves it
		{5000, 5001, "Content-Length 5000 with Body length 5001"},
		{5000, 4999, "Content-Length 5000 with Body length 4999"},
	} {
		t.Run(c.says, func(t *testing.T) {
			text := strings.NewReader(strings.Repeat("x", int(c.has)))
			var sent bytes.Buffer
			require.ErrorContains(t, body{Reader: text, length: c.announced}.write(&sent), c.says)
			require.EqualValues(t, min(c.announced, c.has), sent.Len())
		})
	}
}

// A URL that can't be written in the first lines is refused.
func TestFirstLinesThatAreRefused(t *testing.T) {
	t.Parallel()
	for says, alter := range map[string]func(*url.URL){
		"host is invalid":    func(u *url.URL) { u.Host = "a\r\nb" },
		"host is invalid ":   func(u *url.URL) { u.Host = "[fe80::1%eth0]" },
		"control characters": func(u *url.URL) { u.Opaque = "/a\r\nb" },
	} {
		t.Run(says, func(t *testing.T) {
			r := setup(t, nil)
			_, err := r.post(t, "http://worker.test", func(r *Request) { alter(r.URL) })
			require.ErrorContains(t, err, strings.TrimSpace(says))
			require.Zero(t, r.dialled.Load())
		})
	}
}
