package browsertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience bounds each wait for what a page is to show.
const patience = 2 * time.Minute

// Page is a page in a browser, used by what a person sees on it.
type Page struct {
	Context context.Context // of chromedp

	t          *testing.T
	mu         sync.Mutex
	complaints []string
}

// Open returns a page in a browser that reaches this machine only. It skips the test if there is no
// browser.
func Open(t *testing.T) *Page {
	t.Helper()
	p := &Page{Context: Start(t), t: t}
	require.NoError(t, chromedp.Listen(p.Context, func(ev any) {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch ev := ev.(type) {
		case *log.EventEntryAdded:
			p.complaints = append(p.complaints, ev.Entry.Text+" "+ev.Entry.URL)
		case *runtime.EventExceptionThrown:
			p.complaints = append(p.complaints, ev.ExceptionDetails.Text)
		}
	}))
	return p
}

// Complaints returns what the browser logged: what a policy blocks, what could not be loaded, and
// what scripts threw.
func (p *Page) Complaints() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.complaints)
}

// Go goes to an address.
func (p *Page) Go(url string) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.Context, chromedp.Navigate(url)))
}

// Before runs a script in each document before its own ones, until the test ends.
func (p *Page) Before(script string) {
	p.t.Helper()
	added, err := chromedp.Call(p.Context, cdppage.AddScriptToEvaluateOnNewDocument,
		cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	require.NoError(p.t, err)
	p.t.Cleanup(func() {
		_, err := chromedp.Call(p.Context, cdppage.RemoveScriptToEvaluateOnNewDocument,
			cdppage.RemoveScriptToEvaluateOnNewDocumentParams(added))
		require.NoError(p.t, err)
	})
}

// asPerson makes a script count as what a person does: it may open a tab and use the clipboard.
func asPerson(p *runtime.EvaluateParams) {
	yes := true
	p.UserGesture = &yes
}

// Run runs a script until it returns true. While a page is loading it may also fail. The pauses
// grow: each try takes processor time from the page.
func (p *Page) Run(script string) {
	p.t.Helper()
	whole := chromedp.Evaluate[bool](`!!(() => {`+finders+script+`})()`, asPerson)
	pause := 20 * time.Millisecond
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		if ok, err := chromedp.Run(p.Context, whole); ok && err == nil {
			return
		}
		pause = min(pause*6/5, 150*time.Millisecond)
	}
	p.t.Fatalf("it never came to this: %s\nThe page shows:\n%s", script, p.Text())
}

// finders are functions to find elements by what a person sees of them, in the open dialog if there
// is one.
const finders = `
const where = [...document.querySelectorAll("dialog[open]")].pop() ?? document.body;
const words = e => (e.innerText ?? "").replace(/\s+/g, " ").trim();
const called = (kind, text) =>
	[...where.querySelectorAll(kind)].find(e => words(e) === text && !e.disabled);
const field = label => [...where.querySelectorAll("label")]
	.find(e => words(e).startsWith(label))?.querySelector("input, select, textarea");
`

// See waits until the page shows a text.
func (p *Page) See(text string) {
	p.t.Helper()
	p.Run(`return words(document.body).includes(` + Quote(text) + `)`)
}

// Gone waits until the page doesn't show a text.
func (p *Page) Gone(text string) {
	p.t.Helper()
	p.Run(`return !words(document.body).includes(` + Quote(text) + `)`)
}

// Click presses a button, or follows a link.
func (p *Page) Click(text string) {
	p.t.Helper()
	p.Run(`const e = called("button, a, summary", ` + Quote(text) + `); e?.click(); return !!e`)
}

// Fill types into a field, or chooses one of a list.
func (p *Page) Fill(label, value string) {
	p.t.Helper()
	p.Run(fmt.Sprintf(`const e = field(%s); if (!e) return false;
		if (e.type === "checkbox") { e.click(); return true }
		const set = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), "value").set;
		set.call(e, %s);
		e.dispatchEvent(new Event("input", {bubbles: true}));
		e.dispatchEvent(new Event("change", {bubbles: true}));
		return true`, Quote(label), Quote(value)))
}

// Value returns what stands in a field.
func (p *Page) Value(label string) string {
	p.t.Helper()
	return Ask[string](p.t, p.Context,
		`(() => {`+finders+`return field(`+Quote(label)+`).value})()`)
}

// Text returns all that the page shows.
func (p *Page) Text() string {
	p.t.Helper()
	return Ask[string](p.t, p.Context, `document.body.innerText`)
}

// Quote returns a text as a literal of a script.
func Quote(text string) string {
	doc, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(doc)
}
