package web_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/internal/testnode"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	pgtest.MoreAtOnce(3) // pages hardly wait, and more at once take each other the processor
	os.Exit(browsertest.Main(m))
}

// page is the console in a browser.
type page struct {
	*browsertest.Page
	t    *testing.T
	ctx  context.Context
	node *testnode.Node

	api   *client.Client // of the same tenant
	token string         // that it uses
}

// openPage opens a browser, logged in by a token with some scopes; none: logged out. Tests that use
// it are costly: most tests of the console are. openAlways is for the few that go test ./... runs,
// too: each page is shown once, a change is made, a refusal is read, and what strangers wrote or
// may not do.
func openPage(t *testing.T, scopes ...auth.Scope) *page {
	t.Helper()
	longform.Costly(t)
	return openAlways(t, scopes...)
}

// openPageOf is openPage as somebody of a new tenant, who may do everything.
func openPageOf(t *testing.T, tenant string) *page {
	t.Helper()
	longform.Costly(t)
	return openAlwaysOf(t, tenant)
}

func openAlways(t *testing.T, scopes ...auth.Scope) *page {
	t.Helper()
	t.Parallel()
	one := browsertest.Open(t)
	ctx := one.Context
	p := &page{Page: one, t: t, ctx: ctx, node: testnode.Shared()}
	p.use(p.node.Token)
	if len(scopes) > 0 {
		token, err := p.node.NewToken(time.Hour, scopes...)
		require.NoError(t, err)
		p.enter(token)
	}
	return p
}

func openAlwaysOf(t *testing.T, tenant string) *page {
	t.Helper()
	p := openAlways(t)
	_, err := p.operator().CreateTenant(t.Context(), tenant, client.Quotas{})
	require.NoError(t, err)
	token, err := p.node.TokenOf(tenant, time.Hour, append(all, auth.ScopeWork)...)
	require.NoError(t, err)
	p.use(token)
	p.enter(token)
	return p
}

// use makes the calls of the test use a token.
func (p *page) use(token string) {
	p.t.Helper()
	var err error
	p.api, err = client.New(p.node.URL, token)
	require.NoError(p.t, err)
	p.token = token
}

// post makes a call with a body that goes as it is, by a program with a name.
func (p *page) post(path, body, program string) []byte {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), "POST", p.node.URL+path,
		strings.NewReader(body))
	require.NoError(p.t, err)
	req.Header.Set("Authorization", "Bearer "+p.token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", program)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	require.Less(p.t, resp.StatusCode, 300, "%s", answer)
	return answer
}

// operator returns a client of an operator.
func (p *page) operator() *client.Client {
	p.t.Helper()
	token, err := p.node.OperatorToken()
	require.NoError(p.t, err)
	c, err := client.New(p.node.URL, token)
	require.NoError(p.t, err)
	return c
}

// all are the scopes of somebody who may do everything.
var all = []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate, auth.ScopeManage}

// logIn logs in by the form.
func (p *page) logIn(token string) {
	p.t.Helper()
	p.open("/console")
	p.Fill("Token", token)
	p.Click("Log in")
	p.See("Log out")
}

// enter logs in without the form: the browser gets the cookie that the form would get, and doesn't
// load a page for it.
func (p *page) enter(token string) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), "POST", p.node.URL+"/console/login", nil)
	require.NoError(p.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(p.t, err)
	defer resp.Body.Close()
	require.Equal(p.t, 200, resp.StatusCode)
	yes := true
	for _, c := range resp.Cookies() {
		_, err := chromedp.Call(p.ctx, network.SetCookie, network.SetCookieParams{Name: c.Name,
			Value: c.Value, URL: p.node.URL + "/", Path: "/", Secure: &yes, HTTPOnly: &yes,
			SameSite: network.CookieSameSiteLax})
		require.NoError(p.t, err)
	}
}

func (p *page) open(path string) {
	p.t.Helper()
	p.Go(p.node.URL + path)
}

// database opens a connection to the node's database.
func (p *page) database() *pgx.Conn {
	p.t.Helper()
	c, err := pgx.Connect(p.t.Context(), p.node.Database)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// missing is the complaint about a call for something, or a part of it, that isn't there any more:
// a page may still look at what it just deleted.
func (p *page) missing(path string) string { return "404 (Not Found) " + p.node.URL + path }

// quiet expects that the browser complained about nothing, apart from some texts.
func (p *page) quiet(apartFrom ...string) {
	p.t.Helper()
	for _, c := range p.Complaints() {
		known := false
		for _, part := range apartFrom {
			known = known || strings.Contains(c, part)
		}
		assert.True(p.t, known, c)
	}
}
