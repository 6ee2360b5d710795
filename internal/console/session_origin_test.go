package console_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A page from elsewhere can make the browser send requests with its cookie. They are refused,
// whatever their method is, and so are logins and logouts.
func TestRequestsFromElsewhere(t *testing.T) {
	b := setup(t)
	cookie := b.login(b.token)
	for name, c := range map[string]struct {
		headers headers
		ok      bool
	}{
		"own page":            {headers{"Sec-Fetch-Site": "same-origin"}, true},
		"address bar":         {headers{"Sec-Fetch-Site": "none"}, true},
		"own page, old":       {headers{"Origin": b.url}, true},
		"own page, by https":  {headers{"Origin": "https://" + b.host}, true},
		"both, which differ":  {headers{"Sec-Fetch-Site": "cross-site", "Origin": b.url}, false},
		"elsewhere":           {headers{"Sec-Fetch-Site": "cross-site"}, false},
		"another subdomain":   {headers{"Sec-Fetch-Site": "same-site"}, false},
		"unknown":             {headers{"Sec-Fetch-Site": "Same-Origin"}, false},
		"elsewhere, old":      {headers{"Origin": "https://elsewhere.example"}, false},
		"another port":        {headers{"Origin": "http://127.0.0.1:1"}, false},
		"opaque":              {headers{"Origin": "null"}, false},
		"malformed":           {headers{"Origin": "http://[" + b.host}, false},
		"its host in a path":  {headers{"Origin": "https://elsewhere.example/" + b.host}, false},
		"it begins like ours": {headers{"Origin": b.url + ".elsewhere.example"}, false},
		"not to be told":      {headers{}, false},
	} {
		h := c.headers.with("Cookie", cookie)
		for _, call := range [][2]string{{"GET", types}, {"PUT", types + "/x"},
			{"GET", "/console/session"}} {
			a := b.do(call[0], call[1], h)
			assert.Equal(t, !c.ok, a.status == 403, "%s: %s %s: %s", name, call[0], call[1], a.body)
			if !c.ok {
				assert.Equal(t, "permission_denied", string(a.problem.Code), name)
				assert.Contains(t, a.problem.Detail, "own pages: this one", name)
			}
		}
		in := b.do("POST", "/console/login", c.headers.with("Authorization", "Bearer "+b.token))
		out := b.do("POST", "/console/logout", h)
		if c.ok {
			assert.Equal(t, 200, in.status, name)
			assert.Equal(t, 204, out.status, name)
		} else {
			assert.Equal(t, 403, in.status, name)
			assert.Equal(t, 403, out.status, name)
			assert.Empty(t, in.cookies, name)
			assert.Empty(t, out.cookies, name)
		}
	}
}

// Calls without a session don't depend on where they come from.
func TestOriginWithoutSession(t *testing.T) {
	b := setup(t)
	h := headers{"Sec-Fetch-Site": "cross-site"}
	assert.Equal(t, 401, b.do("GET", types, h).status)
	assert.Equal(t, 200, b.do("GET", types, h.with("Authorization", "Bearer "+b.token)).status)
	assert.Equal(t, 200, b.do("GET", "/healthz", h).status)
	assert.Equal(t, 200, b.do("GET", "/console", h).status, "a link to a page")
}

// A request that two servers in a row may read differently is refused for the console too, and its
// connection closed.
func TestFramingOfTheConsole(t *testing.T) {
	b := setup(t)
	c, err := net.Dial("tcp", b.host)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, "GET /console HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	require.NoError(t, err)
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	assert.Equal(t, 400, resp.StatusCode)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Contains(t, string(text), "Transfer-Encoding")
	_, err = r.ReadByte()
	assert.Error(t, err, "the connection is closed")
}
