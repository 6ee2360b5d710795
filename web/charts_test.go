package web_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/store"
)

// recorded makes a type of a new tenant with a history: tasks in some minutes of the last hour, and
// a time in it in which no node recorded.
func (p *page) recorded(tenant, name string) {
	p.t.Helper()
	ctx := p.t.Context()
	p.makeType(name)
	db := p.database()
	schema := "tenant_" + tenant
	_, err := db.Exec(ctx, `SET search_path = `+schema+`;
		INSERT INTO tallies (type, at, submitted, attempts, failures, succeeded, failed, cancelled)
		SELECT '`+name+`', now() - n * interval '1 min', 40, 50, 12, 37, 3, 0
		FROM unnest(ARRAY[20, 21, 22, 50]) n;
		INSERT INTO type_minutes
		  (type, stage, at, latencies, late_votes, closed_windows, attempts, busy)
		SELECT '`+name+`', 'first', date_trunc('minute', now()) - n * interval '1 min',
		  '{0,0,0,0,0,0,0,0,0,0,9,1}', 0, 0, 10, 12
		FROM unnest(ARRAY[20, 21, 22]) n;
		INSERT INTO endpoint_minutes (endpoint, at, attempts, failures, latencies)
		SELECT id, date_trunc('minute', now()) - n * interval '1 min', 10, 1,
		  array_fill(0, ARRAY[30]) || '{8,1,0,0,1}'
		FROM endpoints, unnest(ARRAY[20, 21, 22]) n WHERE stage = 'first'`)
	require.NoError(p.t, err)
	p.record(tenant)
	// All tests of this process have the same spans: nodes recorded, but for a gap. Spans of
	// earlier tests would cover it after some minutes.
	_, err = db.Exec(ctx, `DELETE FROM asyncflow.history_spans;
		INSERT INTO asyncflow.history_spans VALUES
		(now() - interval '2 h', now() - interval '41 min'),
		(now() - interval '34 min', now()) ON CONFLICT DO NOTHING`)
	require.NoError(p.t, err)
}

// record has the history of a tenant recorded, as nodes do once a minute.
func (p *page) record(tenant string) {
	p.t.Helper()
	s, err := store.Open(p.t.Context(),
		store.Config{URL: p.node.Database, Node: "recorder", Roles: "api"})
	require.NoError(p.t, err)
	defer s.Close()
	_, err = s.RecordHistory(p.t.Context(), tenant, time.Time{})
	require.NoError(p.t, err)
}

// again returns a name that is new in each run of a test.
func again(name string) string { return fmt.Sprint(name, time.Now().UnixNano()%1_000_000) }

// drawn waits until n charts are on the page.
func (p *page) drawn(n int) {
	p.t.Helper()
	p.Run(fmt.Sprintf(`return document.querySelectorAll(".drawing .uplot canvas").length === %d &&
		document.querySelectorAll("[aria-busy=true]").length === 0`, n))
}

const (
	moved    = input.DispatchMouseEventTypeMouseMoved
	pressed  = input.DispatchMouseEventTypeMousePressed
	released = input.DispatchMouseEventTypeMouseReleased
)

// figure is a chart by the beginning of its title.
func figure(title string) string {
	return `[...document.querySelectorAll("figure.plot")].find(f => f.getAttribute("aria-label")` +
		`.startsWith(` + browsertest.Quote(title) + `))`
}

// The page of a type begins with charts of its history: with a table each, marks in words, and the
// range in the URL. They break no rule of axe, and nothing that the policy forbids.
func TestChartsOfAType(t *testing.T) {
	tenant := again("charted")
	p := openPageOf(t, tenant)
	p.recorded(tenant, "lines")
	p.open("/console/types/lines")
	p.drawn(4)
	p.Run(`return document.querySelector("figure.plot").compareDocumentPosition(
		document.querySelector("dl.totals")) & Node.DOCUMENT_POSITION_FOLLOWING`)
	p.See("Hatched: no node recorded then")
	p.Run(`return words(document.querySelector(".marks")).includes("D deploy (1)")`)
	const first = "Tasks finished and failed"
	p.Run(`const f = ` + figure(first) + `; f.querySelector("summary").click(); return true`)
	p.Run(`const rows = [...` + figure(first) + `.querySelectorAll("tbody tr")].map(words);
		return rows.length === 4 && rows.every(r => r.endsWith(" 37 3 9"))`)
	p.Run(`return words(` + figure("How long attempts took") + `).includes("p99")`)
	assert.Empty(t, p.axe())

	p.Click("7 d")
	p.drawn(4)
	assert.Equal(t, "?last=7d", browsertest.Ask[string](t, p.ctx, `location.search`))
	p.Run(`return document.querySelector("nav.choices [aria-current]").textContent === "7 d"`)
	p.Run(`return ` + figure("Tasks finished and failed, attempts retried, per h") + ` != null`)
	for _, width := range []int64{360, 390, 1024, 1440} {
		p.resize(width, 900)
		p.Run(`return [...document.querySelectorAll(".drawing")].every(d =>
			d.querySelector(".uplot").offsetWidth === d.clientWidth)`)
		p.fits(width)
	}
	p.quiet()
}

// The pointer shows the numbers of a step; a drag zooms, into the URL; a double click and Reset
// go back.
func TestZoomOfAChart(t *testing.T) {
	tenant := again("zoomed")
	p := openPageOf(t, tenant)
	p.recorded(tenant, "lens")
	p.open("/console/types/lens")
	p.drawn(4)
	at := func(share float64) (x, y float64) {
		box := browsertest.Ask[[]float64](t, p.ctx, `(() => {
			const e = document.querySelector(".u-over");
			e.scrollIntoView({block: "center"});
			const b = e.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]})()`)
		return box[0] + share*box[2], box[1] + box[3]/2
	}
	mouse := func(kind input.DispatchMouseEventType, share float64, clicks int64) {
		x, y := at(share)
		_, err := chromedp.Call(p.ctx, input.DispatchMouseEvent, input.DispatchMouseEventParams{
			Type: kind, X: x, Y: y, Button: input.MouseButtonLeft, ClickCount: clicks})
		require.NoError(t, err)
	}
	mouse(moved, 0.66, 0)
	p.Run(`const shown = words(document.querySelector(".legend"));
		return !shown.startsWith("last") && /finished \d+ failed \d+ retried \d+$/.test(shown)`)
	drag := func(from, until float64) {
		mouse(pressed, from, 1)
		mouse(moved, (from+until)/2, 1)
		mouse(moved, until, 1)
		mouse(released, until, 1)
	}
	zoomed := func() {
		t.Helper()
		p.Run(`const q = new URLSearchParams(location.search);
			const span = Date.parse(q.get("until")) - Date.parse(q.get("from"));
			return span >= 20 * 60000 && span <= 40 * 60000`)
		p.drawn(4)
	}
	drag(0.25, 0.75)
	zoomed()
	p.Click("Reset")
	p.Run(`return location.search === ""`)
	p.drawn(4)
	drag(0.25, 0.75)
	zoomed()
	for clicks := range int64(2) {
		mouse(pressed, 0.5, clicks+1)
		mouse(released, 0.5, clicks+1)
	}
	p.Run(`return location.search === ""`)
	p.quiet()
}

// The page of an endpoint shows the history of its stage.
func TestChartsOfAnEndpoint(t *testing.T) {
	tenant := again("endcharted")
	p := openPageOf(t, tenant)
	p.recorded(tenant, "ends")
	all, err := p.api.Endpoints(t.Context(), "ends")
	require.NoError(t, err)
	for _, e := range all {
		if e.Stage == "first" {
			p.open("/console/endpoints/" + e.ID)
		}
	}
	p.See("History of stage first")
	p.drawn(3)
	p.Run(`const f = ` + figure("How long attempts took") + `; f.querySelector("summary").click();
		return true`)
	p.Run(`return ` + figure("How long attempts took") + `.querySelectorAll("tbody tr").length === 3`)
	assert.Empty(t, p.axe())
	p.quiet()
}

// The overview shows a chart of all types together, by one call whatever their number. There is a
// table of it, and failed tasks are drawn in a shape of their own.
func TestChartOfTheOverview(t *testing.T) {
	tenant := again("overcharted")
	p := openPageOf(t, tenant)
	p.recorded(tenant, "sums")
	p.delayedTasks("another", 0)
	p.open("/console")
	p.drawn(1)
	const title = "Tasks submitted, finished and failed"
	p.Run(`return words(` + figure(title) + `.querySelector("h3")).endsWith(", per 5 min")`)
	p.See("Hatched: no node recorded then")
	p.Run(`return !!document.querySelector(".legend .sample.bad.in-bars")`)
	p.Run(`document.querySelector(".marks summary").click(); return true`)
	p.Run(`return [...document.querySelectorAll(".marks td")].some(e =>
		words(e) === "sums: version 1" && e.querySelector('a[href="/console/types/sums"]'))`)
	p.Run(`const f = ` + figure(title) + `; f.querySelector("summary").click(); return true`)
	table := func(rows string) {
		t.Helper()
		p.Run(`const all = [...` + figure(title) + `.querySelectorAll("tbody tr")].map(r =>
			[...r.querySelectorAll(".n")].map(e => Number(words(e))));
			const sum = i => all.reduce((n, r) => n + r[i], 0);
			return ` + rows + ` && [sum(0), sum(1), sum(2)].join() === "148,12,160"`)
	}
	table(`all.length < 4`)
	p.checkPage(shown{"charted-overview", "/console", title})
	p.Click("1 h")
	p.drawn(1)
	assert.Equal(t, "?last=1h", browsertest.Ask[string](t, p.ctx, `location.search`))
	p.Run(`return ` + figure(title+", per min") + ` != null`)
	p.Run(`const f = ` + figure(title) + `, d = f.querySelector("details");
		if (!d.open) f.querySelector("summary").click(); return true`)
	table(`all.length > 3`)
	p.resize(phone, 844)
	p.Run(`return document.querySelector(".uplot").offsetWidth ===
		document.querySelector(".drawing").clientWidth`)
	p.fits(phone)
	histories := browsertest.Ask[[]string](t, p.ctx, `performance.getEntriesByType("resource")
		.map(e => new URL(e.name).pathname).filter(path => path.endsWith("/history"))`)
	require.NotEmpty(t, histories)
	for _, path := range histories {
		assert.Equal(t, "/v1/stats/history", path)
	}
	p.quiet()
}

// A type says in words whether its tasks are delivered.
func TestHealthOfAType(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("healthy")
	p.open("/console/types/healthy")
	p.See("Delivering.")
	_, err := p.api.PauseTaskType(t.Context(), "healthy", "a move")
	require.NoError(t, err)
	p.See("it is paused: a move.")
	p.Run(`return words(document.querySelector(".health")).startsWith("Stopped for ")`)
	_, err = p.api.ResumeTaskType(t.Context(), "healthy", 0)
	require.NoError(t, err)
	p.delayedTasks("endless", 0)
	p.open("/console/types/endless")
	p.See("Stopped in stage only: it has no endpoint.")
	_, err = p.api.PutTaskType(t.Context(), "claimed", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only", Mode: "claim"}}})
	require.NoError(t, err)
	p.open("/console/types/claimed")
	p.See("Delivering: workers claim its tasks.")
	p.quiet()
}

// Charts that fail to load say so, and the rest of the page is there.
func TestChartsWithoutAnAnswer(t *testing.T) {
	p := openPage(t, auth.ScopeRead)
	p.delayedTasks("answerless", 0)
	p.open("/console/types/answerless?from=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z")
	p.See("the history is kept for 30 days")
	p.See("Stages")
	p.Click("24 h")
	p.drawn(4)
	p.quiet("400", "/v1/stats/answerless/history")
}
