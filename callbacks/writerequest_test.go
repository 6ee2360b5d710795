package callbacks

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is written is what net/http would write, but for the order of headers.
func TestWriteRequest(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"http://worker.test", "https://worker.test:8443/", "http://worker.test/a%2Fb/ü?x=1&y=%20", "http://worker.test?q", "http://[::1]:80/a b", "http://worker.test//a"} {
		for _, body := range []string{"", "{}", strings.Repeat("long ", 10_000)} {
			req, err := http.NewRequest(http.MethodPost, at, strings.NewReader(body))
			require.NoError(t, err)
			req.Header = http.Header{"User-Agent": {"asyncflow/1.2.3"}, "Content-Type": {"application/json"}, "X-Twice": {"one", "two"}, "X-Empty": {""}}
			var theirs bytes.Buffer
			require.NoError(t, req.Write(&theirs))
			req.Body = io.NopCloser(strings.NewReader(body))
			require.Equal(t, parsed(t, theirs.Bytes()), parsed(t, written(t, req)), at)
		}
	}
}

// written returns what is sent for a request.
func written(t *testing.T, req *http.Request) []byte {
	var ours bytes.Buffer
	w := bufio.NewWriter(&ours)
	require.NoError(t, writeRequest(w, req))
	require.NoError(t, w.Flush())
	return ours.Bytes()
}

// parsedRequest is what a server makes of a request.
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
	return parsedRequest{req.Method, req.RequestURI, req.Proto, req.Host, string(body), req.Header, req.ContentLength}
}

// Headers in the context take the place of those of the request, and one that servers ask for
// is never missing.
func TestWriteRequestHeaders(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequestWithContext(&requestContext{Context: t.Context(), headers: headers{{Name: "X-A", Value: "1"}}}, http.MethodPost, "http://worker.test", http.NoBody)
	require.NoError(t, err)
	require.Equal(t, http.Header{"X-A": {"1"}, "User-Agent": {"asyncflow"}, "Content-Length": {"0"}}, parsed(t, written(t, req)).header)
}

// Nothing that frames a request is taken from its headers, nor from an endpoint's settings,
// and nothing that can't be written in a line.
func TestHeadersThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorker(t, reply(200, ""))
	r := setup(t)
	for name, why := range map[string]string{
		"Host": "not for callers", "content-length": "not for callers", "Transfer-Encoding": "not for callers", "trailer": "not for callers",
		"A\r\nB": "field name", "X-Value": "field value",
	} {
		req, err := http.NewRequest(http.MethodPost, w.url, strings.NewReader("x"))
		require.NoError(t, err)
		req.Header[name] = []string{"a\nb"}
		_, err = r.transport.RoundTrip(req)
		require.ErrorContains(t, err, why, name)

		e := deliveryTo(w.url).Endpoint
		to, err := r.openAnew("acme", e)
		require.NoError(t, err)
		to.settings = &settings{headers: headers{{Name: name, Value: "a\nb"}}}
		_, err = r.post(newRequestContext(t.Context(), ample), e, to, "id", time.Now(), nil)
		require.ErrorContains(t, err, why, name)
	}
	require.Empty(t, w.all())
}

// Of a body that has another length than was said, no more is sent than that, and it fails.
func TestBodiesOfAnotherLength(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		announced int64
		body      io.Reader
		says      string
		sent      int // of the body
	}{
		{0, io.MultiReader(strings.NewReader("x")), "Content-Length 0 with Body length 1", 0}, // as http.NewRequest leaves it
		{-1, io.MultiReader(strings.NewReader("x")), "isn't known", -1},
		{5000, strings.NewReader(strings.Repeat("x", 5001)), "Content-Length 5000 with Body length 5001", 5000},
		{5000, strings.NewReader(strings.Repeat("x", 4999)), "Content-Length 5000 with Body length 4999", 4999},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://worker.test", c.body)
		require.NoError(t, err)
		req.ContentLength = c.announced
		var sent bytes.Buffer
		w := bufio.NewWriter(&sent)
		require.ErrorContains(t, writeRequest(w, req), c.says)
		require.NoError(t, w.Flush())
		_, body, _ := strings.Cut(sent.String(), "\r\n\r\n")
		require.Len(t, body, max(0, c.sent))
		require.Equal(t, c.sent >= 0, sent.Len() > 0)
	}
}

// What can't stand in the first lines isn't written.
func TestFirstLinesThatAreRefused(t *testing.T) {
	t.Parallel()
	for says, alter := range map[string]func(*http.Request){
		"host is invalid":    func(r *http.Request) { r.Host = "a\r\nb" },
		"host is invalid ":   func(r *http.Request) { r.Host = "[fe80::1%eth0]" },
		"control characters": func(r *http.Request) { r.URL.Opaque = "/a\r\nb" },
	} {
		req, err := http.NewRequest(http.MethodPost, "http://worker.test", http.NoBody)
		require.NoError(t, err)
		alter(req)
		var sent bytes.Buffer
		require.ErrorContains(t, writeRequest(bufio.NewWriter(&sent), req), strings.TrimSpace(says))
		require.Zero(t, sent.Len())
	}
}
