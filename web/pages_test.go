package web_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/longform"
)

var (
	screenshots = flag.String("screenshots", "",
		"a folder that TestPages writes pictures of all pages to, such as ../docs/console")
	looks = flag.String("looks", "",
		"a folder for pictures of all checked pages, whole, by width and colours, to look at")
)

// shown is a page, and a text that it shows once it is complete.
type shown struct{ name, path, text string }

// Each page, light, dark and narrow, breaks no rule of axe (WCAG 2 A and AA), needs nothing that
// the policy forbids, and is no wider than the screen.
func TestPages(t *testing.T) {
	p := openPageOf(t, "shop")
	samples := p.samples
	if *screenshots != "" {
		samples = func() []shown { return p.busyShop("shop") }
	}
	pages := samples()
	for _, one := range pages {
		p.checkPage(one)
	}
	operator, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.Click("Log out")
	p.See("A token of the API")
	p.checkPage(shown{"login", "/console", "A token of the API"})
	p.logIn(operator)
	for _, one := range []shown{
		{"operator-overview", "/console", "Tenants in trouble"},
		{"tenants", "/console/tenants", "shop"},
		{"tenant", "/console/tenants/shop", "shop"},
		{"governance", "/console/governance", "testnode"},
		{"operator-audit", "/console/audit", "Audit"},
	} {
		p.checkPage(one)
	}
	p.quiet("/v1/alerts") // 404: there are no rules
}

// A long text in a table wraps on a narrow screen.
func TestLongTextOnANarrowScreen(t *testing.T) {
	p := openPage(t, auth.ScopeRead)
	p.delayedTasks("long-reason", 0)
	_, err := p.api.PauseTaskType(t.Context(), "long-reason", strings.Repeat("worn out ", 100))
	require.NoError(t, err)
	p.resize(390, 800)
	p.open("/console/types")
	p.See("worn out")
	p.Run(`const cell = [...document.querySelectorAll("td")].find(e => words(e).includes("worn out"));
		return cell?.offsetWidth > 200 && cell.offsetWidth < 390`)
}

// samples makes something for each page to show, and returns the pages.
func (p *page) samples() []shown {
	p.t.Helper()
	ctx := p.t.Context()
	p.makeType("invoices")
	for range 5 {
		p.submit("invoices", `{"customer":"c-17","total":12.50}`, client.StatusSucceeded)
	}
	failed := p.submit("invoices", `{"customer":"c-19","total":90,"card":"declined"}`,
		client.StatusFailed)
	_, err := p.api.Submit(ctx, client.NewTask{Type: "invoices",
		Context: client.JSON(`{"customer":"c-20","total":7}`),
		Delay:   client.NewDuration(time.Hour)})
	require.NoError(p.t, err)
	_, err = p.api.PutSchedule(ctx, "nightly",
		client.ScheduleSpec{Type: "invoices", Cron: "0 3 * * *",
			Context: client.JSON(`{"customer":"all"}`)})
	require.NoError(p.t, err)
	_, err = p.api.RedriveAll(ctx, client.BulkRedrive{Type: "invoices"})
	require.NoError(p.t, err)
	endpoints, err := p.api.Endpoints(ctx, "invoices")
	require.NoError(p.t, err)
	return []shown{
		{"overview", "/console", "invoices"},
		{"tasks", "/console/tasks?type=invoices", failed},
		{"task", "/console/tasks/" + failed, "c-19"},
		{"failures", "/console/failures?type=invoices", "the card was declined"},
		{"types", "/console/types", "invoices"},
		{"type", "/console/types/invoices", "second"},
		{"endpoints", "/console/endpoints?type=invoices", "first"},
		{"endpoint", "/console/endpoints/" + endpoints[0].ID, endpoints[0].URL},
		{"workers", "/console/workers?type=invoices", "first"},
		{"schedules", "/console/schedules", "nightly"},
		{"schedule", "/console/schedules/nightly", "nightly"},
		{"operations", "/console/operations", "invoices"},
		{"alerts", "/console/alerts", "Alerts"},
		{"audit", "/console/audit", "invoices"},
	}
}

// checkPage opens a page in all its forms, and checks each.
func (p *page) checkPage(one shown) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.colours(scheme)
		rules := allRules
		if scheme == "light" {
			p.open(one.path)
			p.See(one.text)
		} else { // the page changes its colours while it is open, and nothing else
			rules = colourRules
		}
		for _, fault := range p.axeOf(rules) {
			p.t.Errorf("%s, %s: %s", one.name, scheme, fault)
		}
		p.picture(one.name + "-" + scheme)
	}
	assert.LessOrEqual(p.t, browsertest.Ask[int](p.t, p.ctx, `new Set([...document.querySelectorAll(
		".filters :is(input:not([type=checkbox]), select, button)")].filter(e => e.checkVisibility())
		.map(e => e.getBoundingClientRect().height)).size`), 1,
		"%s: the fields of the filter are of the same height", one.name)
	p.resize(360, 700)
	p.See(one.text)
	rules := shapeRules
	if longform.Asked() {
		rules = allRules
	}
	p.fitsAPhone(one.name, 360, rules)
	for _, row := range browsertest.Ask[[]string](p.t, p.ctx, `[...document.querySelectorAll(
		".scroll table:not(.cards) tbody tr:not(:has(div))")]
		.filter(r => r.checkVisibility() && r.offsetHeight > 45).map(r => r.innerText)`) {
		p.t.Errorf("%s, narrow: a row has several lines: %s", one.name, row)
	}
	for _, width := range []int64{1024, 1440} {
		p.resize(width, 900)
		p.fits(width)
		assert.LessOrEqual(p.t, browsertest.Ask[float64](p.t, p.ctx,
			`document.querySelector("header")?.offsetHeight ?? 0`), 56.0,
			"%s: its header has one line at %d px", one.name, width)
	}
	p.look(one.name)
	p.resize(1280, 900)
}

// look writes pictures of the whole page to look at, if they are asked for.
func (p *page) look(name string) {
	p.t.Helper()
	if *looks == "" {
		return
	}
	for _, scheme := range []string{"light", "dark"} {
		p.colours(scheme)
		for _, width := range []int64{390, 1024, 1440} {
			p.resize(width, 700)
			p.resize(width, browsertest.Ask[int64](p.t, p.ctx,
				`Math.min(Math.max(document.documentElement.scrollHeight, 700), 5000)`))
			p.capture(filepath.Join(*looks, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)))
		}
	}
}

// colours has the browser prefer colours, light or dark.
func (p *page) colours(scheme string) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	require.NoError(p.t, err)
}

// picture writes a picture of the page, if pictures are asked for.
func (p *page) picture(name string) {
	p.t.Helper()
	if *screenshots == "" {
		return
	}
	p.capture(filepath.Join(*screenshots, name+".png"))
}

// capture writes a picture of what is to be seen, once nothing loads.
func (p *page) capture(path string) {
	p.t.Helper()
	p.Run(`return document.querySelectorAll("[aria-busy=true]").length === 0`)
	picture, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	require.NoError(p.t, err)
	picture, err = fewColours(picture)
	require.NoError(p.t, err)
	require.NoError(p.t, os.WriteFile(path, picture, 0o644))
}

func (p *page) resize(width, height int64) {
	p.t.Helper()
	_, err := chromedp.Call(p.ctx, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height,
			DeviceScaleFactor: 1})
	require.NoError(p.t, err)
}

// fits expects that the page is no wider than a screen. After a change of the screen's size, charts
// follow it a moment later.
func (p *page) fits(width int64) {
	p.t.Helper()
	p.Run(fmt.Sprintf(`return document.documentElement.scrollWidth <= %d`, width))
}

// The rules that axe checks. The rules of colours take as long as the rest together. The colours of
// a narrow screen are those of a wide one, so only the long form checks them there.
const (
	allRules    = `runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]`
	colourRules = `runOnly: {type: "rule", values: ["color-contrast", "link-in-text-block"]}`
	shapeRules  = allRules + `, rules: {"color-contrast": {enabled: false},
		"link-in-text-block": {enabled: false}}`
)

// axe returns what breaks the rules for accessible pages.
func (p *page) axe() []string {
	p.t.Helper()
	return p.axeOf(allRules)
}

// axeOf returns what breaks some rules for accessible pages. Without its package there is nothing
// to return, except where CI is set: there the test fails.
func (p *page) axeOf(rules string) []string {
	p.t.Helper()
	source, err := os.ReadFile("node_modules/axe-core/axe.min.js")
	if os.IsNotExist(err) && os.Getenv("CI") == "" {
		p.t.Log("axe is skipped: run npm ci in web")
		return nil
	}
	require.NoError(p.t, err)
	if !browsertest.Ask[bool](p.t, p.ctx, `"axe" in window`) {
		browsertest.Ask[bool](p.t, p.ctx, string(source)+`; true`)
	}
	report := browsertest.Ask[string](p.t, p.ctx, `(async () => {
		const found = await window.axe.run(document, {resultTypes: ["violations"], `+rules+`});
		return found.violations.flatMap(v => v.nodes.map(n =>
			v.id + ": " + v.help + ": " + n.html.slice(0, 200))).join("\n");
	})()`)
	if report == "" {
		return nil
	}
	return strings.Split(report, "\n")
}
