package browsertest_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/browsertest"
)

func TestMain(m *testing.M) { os.Exit(browsertest.Main(m)) }

// A page that served a test serves the next one as if it were new.
func TestPageIsBlankAgain(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/first" {
			http.SetCookie(w, &http.Cookie{Name: "session", Value: "first", HttpOnly: true})
		}
		_, _ = w.Write([]byte(r.Header.Get("Cookie")))
	}))
	t.Cleanup(server.Close)
	var width int
	var heard atomic.Int64
	t.Run("first", func(t *testing.T) {
		page := browsertest.Open(t)
		width = browsertest.Ask[int](t, page.Context, `innerWidth`)
		page.Go(server.URL + "/first")
		page.Go(server.URL + "/second")
		page.See("session=first")
		require.NoError(t, chromedp.Listen(page.Context, func(any) { heard.Add(1) }))
		call(t, page, emulation.SetDeviceMetricsOverride,
			emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 700, DeviceScaleFactor: 1})
		call(t, page, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
		page.Before(`window.left = true`)
		page.Go(server.URL + "/second")
		require.True(t, browsertest.Ask[bool](t, page.Context, `window.left === true`))
		block(t, page)
	})
	before := heard.Load()
	t.Run("second", func(t *testing.T) {
		page := browsertest.Open(t)
		assert.Equal(t, "about:blank", browsertest.Ask[string](t, page.Context, `location.href`))
		assert.Equal(t, 1, browsertest.Ask[int](t, page.Context, `history.length`))
		assert.Equal(t, width, browsertest.Ask[int](t, page.Context, `innerWidth`))
		assert.False(t, browsertest.Ask[bool](t, page.Context,
			`matchMedia("(prefers-color-scheme: dark)").matches`))
		page.Go(server.URL + "/second")
		assert.Empty(t, page.Text(), "no cookie is left")
		assert.False(t, browsertest.Ask[bool](t, page.Context, `"left" in window`))
		assert.True(t, browsertest.Ask[bool](t, page.Context,
			`fetch("/second").then(r => r.ok, () => false)`), "nothing is blocked")
		assert.Empty(t, page.Complaints())
		block(t, page)
		assert.False(t, browsertest.Ask[bool](t, page.Context,
			`fetch("/second").then(r => r.ok, () => false)`), "it can be blocked again")
	})
	assert.Equal(t, before, heard.Load(), "nobody listens for the first test")
}

func block(t *testing.T, page *browsertest.Page) {
	t.Helper()
	call(t, page, network.SetBlockedURLs, network.SetBlockedURLsParams{
		URLPatterns: []*network.BlockPattern{{URLPattern: "*://*:*/*", Block: true}}})
}

func call[P, R any](t *testing.T, page *browsertest.Page, command cdp.Command[P, R], params P) {
	t.Helper()
	_, err := chromedp.Call(page.Context, command, params)
	require.NoError(t, err)
}
