package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	cdpruntime "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
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
	t    *testing.T
	ctx  context.Context
	node *testnode.Node
	api  *client.Client // of the same tenant

	mu         sync.Mutex
	complaints []string // of the browser: what the policy blocks, what fails, what is thrown
}

// openPage opens a browser, logged in by a token with some scopes; none: logged out.
func openPage(t *testing.T, scopes ...auth.Scope) *page {
	t.Helper()
	t.Parallel()
	ctx := browsertest.Start(t)
	p := &page{t: t, ctx: ctx, node: testnode.Shared()}
	var err error
	p.api, err = client.New(p.node.URL, p.node.Token)
	require.NoError(t, err)
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			p.complaints = append(p.complaints, ev.Entry.Text+" "+ev.Entry.URL)
		case *cdpruntime.EventExceptionThrown:
			p.complaints = append(p.complaints, ev.ExceptionDetails.Text)
		}
	}))
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
	p.fill("Token", token)
	p.click("Log in")
	p.see("Log out")
}

func (p *page) open(path string) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, chromedp.Navigate(p.node.URL+path)))
}

// run runs a script until it returns true. While a page is loading it may also fail.
func (p *page) run(script string) {
	p.t.Helper()
	whole := chromedp.Evaluate[bool](`!!(() => {` + find + script + `})()`)
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok, err := chromedp.Run(p.ctx, whole); ok && err == nil {
			return
		}
	}
	p.t.Fatalf("it never came to this: %s\nThe page shows:\n%s", script, p.text())
}

// find has functions to find elements by what a person sees of them, in the open dialog if there
// is one.
const find = `
const where = [...document.querySelectorAll("dialog[open]")].pop() ?? document.body;
const words = e => (e.innerText ?? "").replace(/\s+/g, " ").trim();
const called = (kind, text) => [...where.querySelectorAll(kind)].find(e => words(e) === text && !e.disabled);
const field = label => [...where.querySelectorAll("label")]
	.find(e => words(e).startsWith(label))?.querySelector("input, select, textarea");
`

// see waits until the page shows a text.
func (p *page) see(text string) {
	p.t.Helper()
	p.run(`return words(document.body).includes(` + quote(text) + `)`)
}

// gone waits until the page doesn't show a text.
func (p *page) gone(text string) {
	p.t.Helper()
	p.run(`return !words(document.body).includes(` + quote(text) + `)`)
}

// click presses a button, or follows a link.
func (p *page) click(text string) {
	p.t.Helper()
	p.run(`const e = called("button, a, summary", ` + quote(text) + `); e?.click(); return !!e`)
}

// fill types into a field, or chooses one of a list.
func (p *page) fill(label, value string) {
	p.t.Helper()
	p.run(fmt.Sprintf(`const e = field(%s); if (!e) return false;
		if (e.type === "checkbox") { e.click(); return true }
		const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), "value").set;
		set.call(e, %s);
		e.dispatchEvent(new Event("input", {bubbles: true}));
		e.dispatchEvent(new Event("change", {bubbles: true})); return true`, quote(label), quote(value)))
}

// value returns what stands in a field.
func (p *page) value(label string) string {
	p.t.Helper()
	return browsertest.Ask[string](p.t, p.ctx, `(() => {`+find+`return field(`+quote(label)+`).value})()`)
}

// text returns all that the page shows.
func (p *page) text() string {
	p.t.Helper()
	return browsertest.Ask[string](p.t, p.ctx, `document.body.innerText`)
}

// quiet expects that the browser has complained about nothing, apart from some texts.
func (p *page) quiet(apartFrom ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.complaints {
		known := false
		for _, part := range apartFrom {
			known = known || strings.Contains(c, part)
		}
		assert.True(p.t, known, c)
	}
}

func quote(text string) string {
	doc, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(doc)
}
