package httpapi_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// A browser shows the page. It makes no request to anywhere else, and logs nothing.
func TestDocsInABrowser(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	ctx := browsertest.Start(t)
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
	assert.Contains(t, browsertest.Ask[string](t, ctx,
		`document.querySelector("#operations-tasks-submitTask").innerText`), "Submit a task")
	assert.Greater(t, browsertest.Ask[int](t, ctx, `document.querySelectorAll(".opblock").length`),
		60)
	assert.Equal(t, "none", browsertest.Ask[string](t, ctx,
		`getComputedStyle(document.querySelector(".opblock-summary-control")).borderStyle`),
		"its style was applied")
	require.NoError(t, chromedp.Do(ctx,
		chromedp.Click(chromedp.CSS("#operations-tasks-submitTask .opblock-summary-control")),
		chromedp.WaitVisible(chromedp.CSS("#operations-tasks-submitTask .opblock-body"))))
	body := browsertest.Ask[string](t, ctx,
		`document.querySelector("#operations-tasks-submitTask .opblock-body").innerText`)
	assert.Contains(t, body, "Idempotency-Key")
	assert.Contains(t, body, "x-scope", "the scope that the call needs")
	assert.NotContains(t, body, "Try it out")
	assert.Zero(t, browsertest.Ask[int](t, ctx,
		`document.querySelectorAll("button.authorization__btn").length`))
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

	refused := browsertest.Ask[string](t, ctx,
		`fetch("http://elsewhere.example/").then(() => "fetched", () => "refused")`)
	assert.Equal(t, "refused", refused, "the policy blocks it")
	_, complaints = seen()
	assert.NotEmpty(t, complaints, "the browser logs what the policy blocks")
}
