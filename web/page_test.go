package web_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/testnode"
)

const patience = 2 * time.Minute

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

// page is the console in a browser.
type page struct {
	*browsertest.Page
	t    *testing.T
	ctx  context.Context
	node *testnode.Node
	api  *client.Client // of the same tenant
}

// openPage opens a browser, logged in by a token with some scopes; none: logged out.
func openPage(t *testing.T, scopes ...auth.Scope) *page {
	t.Helper()
	t.Parallel()
	one := browsertest.Open(t)
	ctx := one.Context
	p := &page{Page: one, t: t, ctx: ctx, node: testnode.Shared()}
	var err error
	p.api, err = client.New(p.node.URL, p.node.Token)
	require.NoError(t, err)
	if len(scopes) > 0 {
		token, err := p.node.NewToken(time.Hour, scopes...)
		require.NoError(t, err)
		p.logIn(token)
	}
	return p
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

// quiet expects that the browser has complained about nothing, apart from some texts.
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
