package httpapi_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// startBrowser returns a context of a browser that reaches this machine only. It skips the test if
// there is no browser.
func startBrowser(t *testing.T) context.Context {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("there is no browser: install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.ProxyServer("http://127.0.0.1:1"), chromedp.WindowSize(1280, 900))
	if os.Geteuid() == 0 { // the browser refuses to be root in a sandbox
		options = append(options, chromedp.NoSandbox)
	}
	allocator, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		assert.NoError(t, chromedp.Cancel(ctx)) // waits for its end
		cancel()
		stop()
	})
	return ctx
}

// A browser shows the page. It makes no request to anywhere else, and logs nothing.
func TestDocsInABrowser(t *testing.T) {
	b := setup(t)
	ctx := startBrowser(t)
	var mu sync.Mutex
	var requests, complaints []string
	require.NoError(t, chromedp.Listen(ctx, func(ev any) {
		mu.Lock()
		defer mu.Unlock()
		switch ev := ev.(type) {
		case *network.EventRequestWillBeSent:
			requests = append(requests, ev.Request.URL)
		case *log.EventEntryAdded:
			complaints = append(complaints, ev.Entry.Text)
		}
	}))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(ctx, chromedp.Navigate(b.url+"/docs"),
		chromedp.WaitVisible(chromedp.CSS("#operations-tasks-submitTask"))))
	assert.Contains(t, ask[string](t, ctx,
		`document.querySelector("#operations-tasks-submitTask").innerText`), "Submit a task")
	assert.Greater(t, ask[int](t, ctx, `document.querySelectorAll(".opblock").length`), 60)
	assert.Equal(t, "none", ask[string](t, ctx,
		`getComputedStyle(document.querySelector(".opblock-summary-control")).borderStyle`),
		"its style was applied")
	require.NoError(t, chromedp.Do(ctx,
		chromedp.Click(chromedp.CSS("#operations-tasks-submitTask .opblock-summary-control")),
		chromedp.WaitVisible(chromedp.CSS("#operations-tasks-submitTask .opblock-body"))))
	body := ask[string](t, ctx,
		`document.querySelector("#operations-tasks-submitTask .opblock-body").innerText`)
	assert.Contains(t, body, "Idempotency-Key")
	assert.Contains(t, body, "x-scope", "the scope that the call needs")
	assert.NotContains(t, body, "Try it out")
	assert.Zero(t, ask[int](t, ctx, `document.querySelectorAll("button.authorization__btn").length`))
	seen := func() ([]string, []string) {
		mu.Lock()
		defer mu.Unlock()
		return requests, complaints
	}
	requests, complaints = seen()
	assert.NotEmpty(t, requests)
	for _, url := range requests {
		own := strings.HasPrefix(url, b.url+"/") || strings.HasPrefix(url, "data:")
		assert.True(t, own, url)
	}
	assert.Empty(t, complaints)

	refused := ask[string](t, ctx,
		`fetch("http://elsewhere.example/").then(() => "fetched", () => "refused")`)
	assert.Equal(t, "refused", refused, "the policy blocks it")
	_, complaints = seen()
	assert.NotEmpty(t, complaints, "the browser logs what the policy blocks")
}

// ask returns the value of an expression on the page.
func ask[T any](t *testing.T, ctx context.Context, expression string) T {
	t.Helper()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	return v
}
