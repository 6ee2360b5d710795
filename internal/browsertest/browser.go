// Package browsertest drives a real browser in tests.
package browsertest

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Start returns a context of a page in a browser that reaches this machine only. All pages of a
// process share the browser, but not their cookies. A page serves one test after the other, since
// a new one costs more than most tests do with it: it is blank at first, without cookies. It skips
// the test if there is no browser.
func Start(t *testing.T) context.Context {
	t.Helper()
	if find() == "" {
		t.Skip("there is no browser: install chromium-headless-shell or chromium")
	}
	first, err := shared()
	require.NoError(t, err)
	page, err := pages.take(first)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(page) // a listener listens as long as its context lives
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			assert.NoError(t, chromedp.Cancel(page)) // waits for its end
			return
		}
		require.NoError(t, blank(page))
		pages.put(page)
	})
	return ctx
}

// shared starts the browser of this process, and returns the context of its first page. A browser
// that crashes while it starts is started again.
var shared = sync.OnceValues(func() (ctx context.Context, err error) {
	for range starts {
		if ctx, err = start(); err == nil {
			return ctx, nil
		}
		end()
	}
	return nil, err
})

// starts is how often a browser is started at most.
const starts = 3

// unusedFeatures are the ones that chromedp turns off, and the two popups of the address bar: each
// window loads them as pages of its own, a second of processor time before a test begins.
const unusedFeatures = "Translate,BlinkGenPropertyTrees,WebUIOmniboxPopup," +
	"WebUIOmniboxPopup,WebUIOmniboxAimPopup"

func start() (context.Context, error) {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(find()),
		chromedp.ProxyServer("http://127.0.0.1:1"), chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(patience),
		chromedp.Flag("disable-gpu", true), chromedp.Flag("in-process-gpu", true),
		chromedp.Flag("disable-features", unusedFeatures))
	if os.Geteuid() == 0 { // the browser refuses to be root in a sandbox
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	end = func() {
		_ = chromedp.Cancel(ctx) // waits for its end
		cancel()
		stop()
	}
	return ctx, chromedp.Do(ctx)
}

var end = func() {}

// Main runs the tests of a package and ends the browser, if one of them started it. It returns
// what to exit with.
func Main(m *testing.M) int {
	defer func() { end() }()
	return m.Run()
}

// find returns the path of a browser; "": there is none. The shell draws the same pages, but opens
// no windows of its own: a test takes two thirds of the processor time.
func find() string {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser",
		"google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			return found
		}
	}
	return ""
}

// Ask returns the value of an expression on the page.
func Ask[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	return v
}
