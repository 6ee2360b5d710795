package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/longform"
)

// Somebody decides in a browser, on a phone and in the dark too. A hostile summary is text: it runs
// nothing, loads nothing and changes nothing of the page.
func TestPageInABrowser(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	const hostile = `</pre><script>document.title = "run"</script>` +
		`<img src="http://127.0.0.1:1/x" onerror="document.title = 'run'">` +
		`<meta http-equiv="refresh" content="0;url=http://127.0.0.1:1/">` +
		`<style>p { display: none }</style><form action="http://127.0.0.1:1/"><button>x</button>`
	doc, err := json.Marshal(map[string]string{"summary": hostile + strings.Repeat("wide", 40)})
	require.NoError(t, err)
	_, _, links := b.linked(string(doc))
	page := browsertest.Open(t)
	_, err = chromedp.Call(page.Context, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: 360, Height: 700, DeviceScaleFactor: 1})
	require.NoError(t, err)
	for scheme, light := range map[string]bool{"light": true, "dark": false} {
		_, err = chromedp.Call(page.Context, emulation.SetEmulatedMedia,
			emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}}})
		require.NoError(t, err)
		page.Go(b.url + links["approve"])
		page.See(hostile)
		page.Run(`return document.title === "Decide: approve" &&
			document.querySelectorAll("button, form, script, img").length === 2`)
		page.Run(`return document.documentElement.scrollWidth <= 360`)
		page.Run(`return getComputedStyle(document.querySelector("pre")).borderStyle === "solid"`)
		page.Run(`const probe = document.createElement("p"); document.body.append(probe);
			const color = getComputedStyle(probe).color; probe.remove();
			return (color === "rgb(0, 0, 0)") === ` + map[bool]string{true: "true",
			false: "false"}[light])
	}
	require.Empty(t, page.Complaints(), "the policy had to block nothing")
	require.Equal(t, "refused", browsertest.Ask[string](t, page.Context,
		`fetch("`+b.url+`/healthz").then(() => "fetched", () => "refused")`))

	page.Fill("Your name", `Anna <img src=x onerror="document.title='run'">`)
	page.Click("approve")
	page.See("Thank you")
	page.See(`Anna <img src=x onerror="document.title='run'">`)
	page.Go(b.url + links["reject"])
	page.See("Already decided")
	page.See("approve")
	page.Run(`return document.title === "Already decided" &&
		document.querySelectorAll("button, img").length === 0`)
}
