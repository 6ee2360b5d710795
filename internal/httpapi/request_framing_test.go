package httpapi_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client/api"
)

// dial opens a connection to the server of a bundle.
func (b *bundle) dial() net.Conn {
	b.t.Helper()
	c, err := net.Dial("tcp", b.url[len("http://"):])
	require.NoError(b.t, err)
	b.t.Cleanup(func() { c.Close() })
	require.NoError(b.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	return c
}

// answersOn reads answers until the server closes the connection. closed is false if the server
// leaves it open for a while.
func answersOn(t testing.TB, c net.Conn, within time.Duration) (all []answer, closed bool) {
	t.Helper()
	require.NoError(t, c.SetReadDeadline(time.Now().Add(within)))
	for r := bufio.NewReader(c); ; {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			var netErr net.Error
			return all, !errors.As(err, &netErr) || !netErr.Timeout()
		}
		a := answer{status: resp.StatusCode, header: resp.Header}
		a.body, err = io.ReadAll(resp.Body)
		require.NoError(t, err)
		if strings.HasPrefix(a.header.Get("Content-Type"), "application/problem+json") {
			require.NoError(t, json.Unmarshal(a.body, &a.problem))
			require.Equal(t, a.status, a.problem.Status)
		}
		all = append(all, a)
	}
}

// exchange sends bytes on a new connection, and returns the answers.
func (b *bundle) exchange(text string) ([]answer, bool) {
	b.t.Helper()
	c := b.dial()
	go io.WriteString(c, text) // the server may close before it got all of it
	return answersOn(b.t, c, patience)
}

// A request that can be read in two ways is refused with one answer, and nothing after it on the
// connection is read as a request. Otherwise two servers in a row that read it differently would
// let one caller write another caller's request. Afterwards the server works as before.
func TestFraming(t *testing.T) {
	b := setup(t)
	b.pipe()
	head := "POST /v1/tasks HTTP/1.1\r\nHost: h\r\nContent-Type: " +
		"application/json\r\nAuthorization: Bearer " + b.token + "\r\n"
	task := `{"type":"pipe","context":"first"}`
	smuggled := head + "Content-Length: 36\r\n\r\n" + `{"type":"pipe","context":"smuggled"}`
	get := func(line string) string { return line + "\r\nHost: h\r\n\r\n" }
	chunk := "Transfer-Encoding: chunked\r\n\r\n"
	for name, request := range map[string]string{
		"length and chunks": head +
			"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunks and length": head +
			"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"length 0 and chunks": head +
			"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":            head + "Content-Length: 0\r\nContent-Length: 36\r\n\r\n",
		"two lengths, as a list": head + "Content-Length: 0, 36\r\n\r\n",
		"length with a plus":     head + "Content-Length: +0\r\n\r\n",
		"length below zero":      head + "Content-Length: -1\r\n\r\n",
		"length in hexadecimal":  head + "Content-Length: 0x0\r\n\r\n",
		"length of two numbers":  head + "Content-Length: 0 0\r\n\r\n",
		"length of words":        head + "Content-Length: none\r\n\r\n",
		"length that overflows":  head + "Content-Length: 18446744073709551616\r\n\r\n",
		"length, a space before": head + "Content-Length : 0\r\n\r\n",
		"length, after a fold":   head + "X: y\r\n Content-Length: 0\r\n\r\n",
		"chunks, a space before": head + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"chunks, after a fold":   head + "X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked, identity":      head + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"identity":               head + "Transfer-Encoding: identity\r\n\r\n",
		"gzip, chunked":          head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"another word":           head + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"chunked twice": head +
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"chunked, then identity": head +
			"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"chunked in HTTP/1.0": strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + chunk +
			"0\r\n\r\n",
		"chunk of no size":          head + chunk + "\r\n\r\n",
		"chunk of a bad size":       head + chunk + "zz\r\n\r\n",
		"chunk below zero":          head + chunk + "-1\r\n\r\n",
		"chunk with a plus":         head + chunk + "+0\r\n\r\n",
		"chunk with 0x":             head + chunk + "0x0\r\n\r\n",
		"chunk that overflows":      head + chunk + "ffffffffffffffff1\r\n\r\n",
		"chunk larger than it says": head + chunk + "1\r\nab\r\n0\r\n\r\n",
		"chunk without an end":      head + chunk + "1\r\nab0\r\n\r\n",
		"chunk ended by LF":         head + chunk + "1\na\n0\n\n",
		"chunks' end by LF":         head + chunk + "0\r\n\n",
		"trailer ended by LF":       head + chunk + "0\r\nX: y\n\r\n",
		"trailer folded":            head + chunk + "0\r\nX: y\r\n z\r\n\r\n",
		"trailer with a space":      head + chunk + "0\r\nX : y\r\n\r\n",
		"trailer without a name":    head + chunk + "0\r\n: y\r\n\r\n",
		"chunk extension with LF":   head + chunk + "0;a\nb\r\n\r\n",
		"fold":                      head + "X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
		"fold by a tab":             head + "X: a\r\n\tb\r\nContent-Length: 0\r\n\r\n",
		"header without a colon":    head + "Nothing\r\nContent-Length: 0\r\n\r\n",
		"header without a name":     head + ": x\r\nContent-Length: 0\r\n\r\n",
		"header with a space":       head + "X Y: z\r\nContent-Length: 0\r\n\r\n",
		"header with NUL":           head + "X: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"header with CR":            head + "X: a\rContent-Length: 36\r\n\r\n",
		"header that begins blank": strings.Replace(head, "Host", " Host", 1) +
			"Content-Length: 0\r\n\r\n",
		"lines ended by LF":    strings.ReplaceAll(head, "\r\n", "\n") + "Content-Length: 0\n\n",
		"one line ended by LF": head + "X: y\nContent-Length: 0\r\n\r\n",
		"two hosts":            head + "Host: other\r\nContent-Length: 0\r\n\r\n",
		"no host": strings.Replace(head, "Host: h\r\n", "", 1) +
			"Content-Length: 0\r\n\r\n",
		"two tokens": head +
			"authorization: Bearer other\r\nContent-Length: 2\r\n\r\n{}",
		"HTTP/0.9":              "GET /healthz\r\n\r\n",
		"HTTP/2.0":              get("GET /healthz HTTP/2.0"),
		"HTTP/1.2":              get("GET /healthz HTTP/1.2"),
		"HTTP/11":               get("GET /healthz HTTP/11"),
		"http/1.1":              get("GET /healthz http/1.1"),
		"HTTP/2's preface":      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"a path with a space":   get("GET /heal thz HTTP/1.1"),
		"two spaces":            get("GET  /healthz HTTP/1.1"),
		"a tab":                 get("GET\t/healthz\tHTTP/1.1"),
		"no path":               get("GET HTTP/1.1"),
		"a method of odd bytes": get("G\x00T /healthz HTTP/1.1"),
		"TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" +
			strings.Repeat("\x7f", 100) + "\r\n\r\n",
		"SSH":                        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
		"garbage":                    "\x00\xff\xfe\x01garbage\r\n\r\n",
		"a header that is too large": head + "X: " + strings.Repeat("x", 20<<10) + "\r\n\r\n",
		"too many headers":           head + strings.Repeat("X: y\r\n", 5000) + "\r\n",
		"a path that is too long":    get("GET /" + strings.Repeat("x", 20<<10) + " HTTP/1.1"),
	} {
		t.Run(name, func(t *testing.T) {
			answers, closed := b.exchange(request + smuggled)
			assert.True(t, closed, "the connection is closed")
			if assert.Equal(t, 1, len(answers), "one answer") {
				assert.GreaterOrEqual(t, answers[0].status, 400, "%s", answers[0].body)
				assert.Less(t, answers[0].status, 500, "%s", answers[0].body)
			}
			require.Equal(t, 200, b.callAs("", "GET", "/healthz", "").status, "it still serves")
		})
	}
	list := read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", ""))
	require.Empty(t, list.Data, "nothing was smuggled in")

	// Requests that are correct HTTP pass: each of these is one request. The next request follows
	// it, but after a chunked body the connection ends.
	for name, request := range map[string]string{
		"length":         head + "Content-Length: 33\r\n\r\n" + task,
		"chunks":         head + chunk + "21\r\n" + task + "\r\n0\r\n\r\n",
		"several chunks": head + chunk + "1\r\n{\r\n20\r\n" + task[1:] + "\r\n0\r\n\r\n",
		"capital chunks": head + "transfer-encoding: CHUNKED\r\n\r\n21\r\n" + task +
			"\r\n0\r\n\r\n",
		"a chunk extension": head + chunk + "21;a=b\r\n" + task + "\r\n0\r\n\r\n",
		"a huge one": head + chunk + "21;" + strings.Repeat("x", 1<<20) + "\r\n" + task +
			"\r\n0\r\n\r\n",
		"a chunk's space": head + chunk + "21 \r\n" + task + "\r\n0\r\n\r\n",
		"100-continue":    head + "Expect: 100-continue\r\nContent-Length: 33\r\n\r\n" + task,
	} {
		t.Run(name, func(t *testing.T) {
			last := strings.Replace(smuggled, "Host: h\r\n", "Host: h\r\nConnection: close\r\n", 1)
			answers, closed := b.exchange(request + last)
			assert.True(t, closed)
			statuses := []int{}
			for _, a := range answers {
				statuses = append(statuses, a.status)
			}
			switch {
			case name == "100-continue":
				assert.Equal(t, []int{100, 201, 201}, statuses)
			case name == "length":
				assert.Equal(t, []int{201, 201}, statuses)
			default:
				assert.Equal(t, []int{201}, statuses)
			}
		})
	}
}

// Pipelined requests are answered in their order, up to the first that can't be parsed.
func TestPipelining(t *testing.T) {
	b := setup(t)
	get := "GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n"
	answers, closed := b.exchange(get + get + "NONSENSE\r\n\r\n" + get + get)
	require.True(t, closed)
	require.Len(t, answers, 3)
	require.Equal(t, []int{200, 200, 400},
		[]int{answers[0].status, answers[1].status, answers[2].status})

	answers, closed = b.exchange(strings.Repeat(get, 500) +
		strings.Replace(get, "Host", "Connection: close\r\nHost", 1))
	require.True(t, closed)
	require.Len(t, answers, 501)
	for _, a := range answers {
		require.Equal(t, 200, a.status)
	}
}

// A request that can't be parsed is answered with a problem that names the limit, if there is one.
func TestWireProblems(t *testing.T) {
	b := setup(t)
	post := "POST /v1/tasks HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + b.token + "\r\n"
	some := strings.Repeat("x", 8<<10) // of a body
	for name, c := range map[string]struct {
		request     string
		status      int
		code, field string
		says        string
	}{
		"header": {"GET /healthz HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("x", 20<<10) +
			"\r\n\r\n", 431, "too_large", "header", "16384"},
		"body": {post + "Content-Length: 99999999999\r\n\r\n" + some, 413, "too_large", "body",
			"1048576"},
		"method": {"BREW /healthz HTTP/1.1\r\nHost: h\r\n\r\n", 400, "invalid_argument", "method",
			"is not known"},
		"chunk": {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_argument",
			"body", ""},
	} {
		answers, closed := b.exchange(c.request)
		require.True(t, closed, name)
		require.Len(t, answers, 1, name)
		a := answers[0]
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"), name)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.Equal(t, c.code, a.problem.Code, name)
		require.NotEmpty(t, a.problem.Errors, "%s: %s", name, a.body)
		require.Equal(t, c.field, a.problem.Errors[0].Field, name)
		require.Contains(t, a.problem.Errors[0].Message, c.says, name)
	}
}
