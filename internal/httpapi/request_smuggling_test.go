package httpapi_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// smuggled is a request that would be made with the credential of the next caller on the
// connection: its last header swallows the first line of the next request.
const smuggled = "DELETE /v1/task-types/victim HTTP/1.1\r\nX-Swallowed: "

// beginnings are how bodies of a content type begin, where a parser of that type might take the
// beginning for the whole body.
var beginnings = map[string]string{
	"multipart/form-data; boundary=x": "--x\r\nContent-Disposition: form-data; " +
		"name=\"a\"\r\n\r\nb\r\n--x--\r\n",
	"application/x-www-form-urlencoded": "a=b\r\n\r\n",
	"application/json":                  "{}",
	"application/octet-stream":          "",
	"":                                  "",
}

// apiCall is a call of the contract with a good credential.
type apiCall struct{ method, path, token string }

// everyCall returns all calls of the contract.
func (b *bundle) everyCall() (calls []apiCall) {
	b.t.Helper()
	doc := contracttest.Document()
	completion := b.keys.CompletionToken(callbacks.Completion{Tenant: "acme",
		Task: asyncflow.NewTaskID("pipe", 1, 1), Seq: 1,
		Expiry: time.Now().Add(time.Hour)})
	fill := strings.NewReplacer("{type}", "pipe", "{name}", "nightly", "{slug}", "other", "{id}",
		"pipe.1.1")
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			token := b.token
			for _, requirement := range *security(doc, op) {
				if _, ok := requirement["adminToken"]; ok {
					token = b.adminToken()
				}
				if _, ok := requirement["completionToken"]; ok {
					token = completion
				}
			}
			calls = append(calls, apiCall{method, fill.Replace(path), token})
		}
	}
	require.Greater(b.t, len(calls), 40)
	return calls
}

func security(doc *openapi3.T, op *openapi3.Operation) *openapi3.SecurityRequirements {
	if op.Security != nil {
		return op.Security
	}
	return &doc.Security
}

// proxied returns a proxy in front of a bundle's server. The proxy keeps one connection to the
// server, and sends all requests over it.
func (b *bundle) proxied(t *testing.T) string {
	t.Helper()
	to, err := url.Parse(b.url)
	require.NoError(t, err)
	transport := &http.Transport{MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1,
		ExpectContinueTimeout: patience}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: transport}
	s := httptest.NewServer(proxy)
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
	})
	return s.URL
}

// attack makes a call with a body of a beginning and then, at an offset, the smuggled request.
func (c apiCall) attack(t *testing.T, proxy, contentType string, at int, chunked, expect bool) int {
	t.Helper()
	body := beginnings[contentType]
	body += strings.Repeat("\n", max(0, at-len(body))) + smuggled
	var reader io.Reader = strings.NewReader(body)
	if chunked {
		reader = io.MultiReader(reader) // of a length that nobody knows
	}
	req, err := http.NewRequestWithContext(t.Context(), c.method, proxy+c.path, reader)
	require.NoError(t, err)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if expect {
		req.Header.Set("Expect", "100-continue")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0 // the connection was closed over the body
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// hiddenAt are the ways in which a body hides a request: where it stands, and how the body is sent.
var hiddenAt = []struct {
	at              int
	chunked, expect bool
}{{at: 0}, {at: 8 << 10}, {at: 64<<10 + 1}, {at: 100, chunked: true},
	{at: 64<<10 + 1, chunked: true}, {at: 0, expect: true}, {at: 9 << 10, expect: true}}

// Behind a proxy that keeps its connections, no byte of a body is ever executed with the credential
// of the next caller, whatever the call and its content type, length and credential: a request is
// as long as its framing says. In the short form each call meets a third of the ways to hide it,
// since all calls are read by the same code.
func TestSmugglingThroughAProxy(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/victim",
		`{"stages":[{"name":"only"}]}`).status)
	calls := b.everyCall()
	manager := b.newToken("acme", auth.ScopeRead, auth.ScopeManage)
	var wg sync.WaitGroup
	defer wg.Wait()
	for contentType := range beginnings {
		wg.Go(func() {
			proxy := b.proxied(t)
			for n, call := range calls {
				for _, token := range []string{"", call.token} {
					for i, v := range hiddenAt {
						if i%3 != n%3 && !longform.Asked() {
							continue
						}
						attack := apiCall{call.method, call.path, token}
						status := attack.attack(t, proxy, contentType, v.at, v.chunked, v.expect)
						what := []any{"%s %s as %q, %+v, with a token: %t", call.method, call.path,
							contentType, v,
							token != ""}
						assert.Contains(t, []int{0, 400, 401, 403, 404, 405, 409, 413, 502}, status,
							what...)
						next := apiCall{"GET", "/v1/task-types/victim", manager}
						if !assert.Equal(t, 200, next.plain(t, proxy), what...) {
							return
						}
					}
				}
			}
		})
	}
}

// plain makes a call without a body and returns the status of its answer.
func (c apiCall) plain(t *testing.T, proxy string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), c.method, proxy+c.path, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+c.token)
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(t, err) {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// The same on a raw connection: a refused body is followed by the next request or by the end of the
// connection, and nothing in it is answered.
func TestRefusedBodiesOnAConnection(t *testing.T) {
	b := setupTwo(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/task-types/victim",
		`{"stages":[{"name":"only"}]}`).status)
	canary := "DELETE /v1/task-types/victim HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " +
		b.token + "\r\n\r\n"
	last := "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	form := "Content-Type: multipart/form-data; boundary=x\r\n"
	for n, call := range b.everyCall() {
		for _, token := range []string{"", call.token} {
			for name, body := range map[string]string{
				"small":  beginnings["multipart/form-data; boundary=x"] + canary,
				"medium": strings.Repeat("\n", 60<<10) + canary,
				"large": strings.Repeat("\n", 8<<10) + canary + strings.Repeat("\n", 64<<10) +
					canary,
			} {
				head := call.method + " " + call.path +
					" HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + token + "\r\n" + form
				length := "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
				chunks := "Transfer-Encoding: chunked\r\n\r\n" +
					strconv.FormatInt(int64(len(body)), 16) + "\r\n" + body + "\r\n0\r\n\r\n"
				for i, request := range []string{head + length + body, head + chunks, head +
					"Expect: 100-continue\r\n" + length + body} {
					if i != n%3 && !longform.Asked() { // a third of the ways, as above
						continue
					}
					answers, closed := b.exchange(request + last)
					what := []any{"%s %s, %s, with a token: %t", call.method, call.path, name,
						token != ""}
					require.True(t, closed, what...)
					answers = slices.DeleteFunc(answers, func(a answer) bool {
						return a.status == 100
					})
					require.Contains(t, []int{1, 2}, len(answers), what...)
					require.GreaterOrEqual(t, answers[0].status, 400, what...)
					if len(answers) == 2 {
						require.Equal(t, 200, answers[1].status, what...)
					}
				}
			}
		}
	}
	require.Equal(t, 200, b.call("GET", "/v1/task-types/victim", "").status)
}

// A body that ends before its framing says is refused, even if what arrived is a valid document.
func TestBodiesCutOff(t *testing.T) {
	b := setup(t)
	b.pipe()
	head := "POST /v1/tasks HTTP/1.1\r\nHost: h\r\nContent-Type: " +
		"application/json\r\nAuthorization: Bearer " + b.token + "\r\n"
	task := `{"type":"pipe","context":"cut off"}`
	large := task + strings.Repeat(" ", 20_000)
	chunk := func(s string) string {
		return strconv.FormatInt(int64(len(s)), 16) + "\r\n" + s +
			"\r\n"
	}
	for name, request := range map[string]string{
		"length":            head + "Content-Length: 5000\r\n\r\n" + task,
		"large length":      head + "Content-Length: 50000\r\n\r\n" + large,
		"chunks":            head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(task),
		"large chunks":      head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(large),
		"in the last chunk": head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(task) + "0\r\n",
		"in a chunk":        head + "Transfer-Encoding: chunked\r\n\r\n100\r\n" + task,
		"in a trailer": head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(task) +
			"0\r\nX-A: b\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			c := b.dial()
			_, err := io.WriteString(c, request)
			require.NoError(t, err)
			require.NoError(t, c.(*net.TCPConn).CloseWrite())
			answers, closed := answersOn(t, c, patience)
			require.True(t, closed)
			for _, a := range answers {
				require.Equal(t, 400, a.status, "%s", a.body)
			}
		})
	}
	require.Empty(t, read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", "")).Data)
}

// The trailer after the chunks is not added to the header, which was checked before.
func TestTrailersAreDropped(t *testing.T) {
	b := setup(t)
	b.pipe()
	head := "POST /v1/tasks HTTP/1.1\r\nHost: h\r\nContent-Type: " +
		"application/json\r\nAuthorization: Bearer " + b.token + "\r\n"
	task := "Transfer-Encoding: chunked\r\n\r\n1f\r\n" + `{"type":"pipe","context":"one"}` +
		"\r\n0\r\n"
	last := "GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
	answers, closed := b.exchange(head + task +
		"Idempotency-Key: trailed\r\nX-Request-Id: trailed\r\n\r\n" + last)
	require.True(t, closed)
	require.Len(t, answers, 1)
	id := read[api.Task](b, 201, answers[0]).ID
	require.Empty(t, read[api.Task](b, 200, b.call("GET", "/v1/tasks/"+id, "")).Key)
	for _, trailer := range []string{"Authorization: Bearer x\r\n\r\n", "Content-Length: 5\r\n\r\n",
		"Host: other\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n", " folded\r\n\r\n"} {
		answers, closed = b.exchange(head + task + trailer + last)
		require.True(t, closed)
		require.Len(t, answers, 1, trailer)
		require.Equal(t, 400, answers[0].status, trailer)
	}
}

// An HTTP/1.0 client doesn't know interim answers: it would take one for the answer, and the answer
// for that of its next request.
func TestExpectOfHTTP10(t *testing.T) {
	b := setup(t)
	answers, closed := b.exchange("POST /v1/tasks HTTP/1.0\r\nHost: h\r\nExpect: " +
		"100-continue\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}" +
		"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
	require.True(t, closed)
	require.Len(t, answers, 2)
	require.Equal(t, []int{401, 200}, []int{answers[0].status, answers[1].status})
}
