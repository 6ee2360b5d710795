package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/console"
)

// browser is a browser that reaches this machine only.
type browser struct {
	*browsertest.Page
	t   *testing.T
	ctx context.Context
}

// startBrowser skips the test if there is no browser.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	page := browsertest.Open(t)
	_, err := chromedp.Call(page.Context, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	return &browser{Page: page, t: t, ctx: page.Context}
}

// ask returns the text that an expression on the page gives, or will give.
func (br *browser) ask(expression string) string {
	br.t.Helper()
	return browsertest.Ask[string](br.t, br.ctx, expression)
}

// status returns the status of a call that the page makes.
func (br *browser) status(method, path, options string) string {
	br.t.Helper()
	return br.ask(fmt.Sprintf(`fetch(%q, {method: %q, %s}).then(r => "" + r.status)`, path, method,
		options))
}

// violations returns what the browser logged about the policy.
func (br *browser) violations() (all []string) {
	for _, text := range br.Complaints() {
		if strings.Contains(text, "Content Security Policy") {
			all = append(all, text)
		}
	}
	return all
}

// A browser keeps the session by plain http on this machine, sends it with the page's own calls,
// and doesn't show it to the page. What another site makes it send is refused.
func TestConsoleInABrowser(t *testing.T) {
	b := setup(t)
	br := startBrowser(t)
	br.Go(b.url + "/console")
	assert.Equal(t, "401", br.status("GET", types, ""))
	authorization := fmt.Sprintf(`headers: {Authorization: "Bearer %s"}`, b.token)
	require.Equal(t, "200", br.status("POST", "/console/login", authorization))
	assert.Equal(t, "200", br.status("GET", types, ""))
	assert.Empty(t, br.ask(`document.cookie`))
	br.Go(b.url + "/console/tasks")
	assert.Contains(t, br.ask(`fetch("/console/session").then(r => r.text())`), `"logged_in":true`)

	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `<html><a href="%s%s">a link</a></html>`, b.url, types)
	}))
	defer site.Close()
	// another port is the same site, another name is not
	for _, elsewhere := range []string{site.URL,
		strings.Replace(site.URL, "127.0.0.1", "localhost", 1)} {
		br.Go(elsewhere)
		require.NoError(t, chromedp.Do(br.ctx, chromedp.Click(chromedp.CSS("a")),
			chromedp.WaitVisible(chromedp.CSS("pre"))))
		assert.Contains(t, br.ask(`document.body.innerText`), "permission_denied")
	}

	br.Go(b.url + "/console")
	assert.Equal(t, "204", br.status("POST", "/console/logout", ""))
	assert.Equal(t, "401", br.status("GET", types, ""))
}

// The page keeps to its policy, which refuses scripts and requests that aren't its own.
func TestPolicyInABrowser(t *testing.T) {
	b := setup(t)
	br := startBrowser(t)
	br.Go(b.url + "/console")
	assert.Empty(t, br.violations(), "by the page itself")
	assert.Equal(t, "refused", br.ask(
		`fetch("http://elsewhere.example/").then(() => "fetched", () => "refused")`))
	assert.Equal(t, "none", br.ask(`(() => {
		const s = document.createElement("script");
		s.textContent = "window.injected = 'injected'";
		document.body.append(s);
		return window.injected || "none";
	})()`))
	assert.NotEmpty(t, br.violations(), "the browser logs what the policy blocks")
}

// A browser gets through the issuer and back, and is then logged in. A developer's is so at once.
func TestLoginsInABrowser(t *testing.T) {
	b, i := setupOIDC(t)
	br := startBrowser(t)
	br.Go(b.url + "/console/oidc?to=/console/tasks%3Ftype=images")
	assert.Equal(t, b.url+"/console/tasks?type=images", br.ask(`location.href`))
	assert.Equal(t, 1, i.count("/token"))
	assert.Equal(t, "200", br.status("GET", types, ""))

	b.serve(func(cfg *console.Config) { cfg.Open = b.token })
	local := strings.Replace(b.url, "127.0.0.1", "localhost", 1)
	br.Go(local + "/console")
	assert.Equal(t, "200", br.status("GET", types, ""))
	assert.Equal(t, "204", br.status("POST", "/console/logout", ""))
	br.Go(local + "/console")
	assert.Equal(t, "401", br.status("GET", types, ""))
}
