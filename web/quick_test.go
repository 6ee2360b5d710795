package web_test

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

var (
	tasks = flag.Int("tasks", 2000, "how many tasks TestManyTasks makes")
	watch = flag.Duration("watch", 0, "how long TestManyTasks leaves the overview open")
	opens = flag.Int("consoles", 0, "how many more open consoles TestManyTasks measures")
	ended = flag.Int("ended", 0, "how many ended tasks TestManyTasks puts into the tables")
	quick = flag.Bool("quick", false,
		"TestManyTasks fails if the console isn't as quick as on a machine without other work")
)

// The longest times of the console on a machine without other work, with a million tasks.
const (
	quickRows  = 300 * time.Millisecond // from the address of a list to its rows
	quickCount = 100 * time.Millisecond // GET /v1/tasks/count of all
	quickQuota = 50 * time.Millisecond
)

// A list of many tasks is read page by page. With -v it also says how long a page takes until it is
// shown, and with -watch what an open one takes; docs/console.md has the figures. With -quick the
// times have limits.
func TestManyTasks(t *testing.T) {
	p := openPageOf(t, "many")
	_, err := p.api.PutTaskType(t.Context(), "huge", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	p.putEnded(*ended)
	batch := make([]client.NewTask, 1000)
	for i := range batch {
		batch[i] = client.NewTask{Type: "huge", Context: client.JSON(`{"customer":"c-17"}`)}
	}
	var last []client.Result
	for n := 0; n < *tasks; n += len(batch) {
		last, err = p.api.SubmitMany(t.Context(), batch)
		require.NoError(t, err)
	}
	newest := last[len(last)-1].Task.ID

	began := time.Now()
	p.open("/console/tasks?type=huge")
	p.See(newest)
	shown := time.Since(began)
	paint := browsertest.Ask[float64](t, p.ctx,
		`performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? -1`)
	assert.Equal(t, 50, browsertest.Ask[int](t, p.ctx,
		`document.querySelectorAll("tbody tr").length`))
	t.Logf("%d tasks: first paint after %.0f ms, the list after %v", *tasks, paint, shown)
	turned := 2
	if testing.Verbose() { // more are measured
		turned = 15
	}
	pages := make([]nextPage, turned)
	for i := range pages {
		pages[i] = browsertest.Ask[nextPage](t, p.ctx, turnPage)
		assert.Equal(t, 50, pages[i].Rows)
	}
	slices.SortFunc(pages, func(a, b nextPage) int { return cmp.Compare(a.Shown, b.Shown) })
	t.Logf("the next page, of %d: the quickest after %.0f ms, the median after %.0f ms, of which "+
		"the call took %.0f ms", turned, pages[0].Shown, pages[turned/2].Shown, pages[turned/2].Call)
	if testing.Verbose() {
		p.timeCalls(newest)
		p.timeLists()
		p.timePages()
	}
	if *watch > 0 {
		p.watch(*watch)
	}
	if *opens > 0 {
		p.watchMany(t, *opens, max(*watch, time.Minute))
	}
}

// putEnded writes ended tasks of the type huge, one a second, before any other task. One in a
// hundred failed.
func (p *page) putEnded(n int) {
	p.t.Helper()
	if n == 0 {
		return
	}
	_, err := p.database().Exec(p.t.Context(), fmt.Sprintf(`SET search_path = tenant_many;
		CREATE TEMP TABLE made AS SELECT y.number AS type, (1::bigint << 40) + n AS id,
		  now() - (%[1]d - n) * interval '1 s' AS at, n %% 100 = 7 AS failed, n
		FROM generate_series(1, %[1]d) n, task_types y WHERE y.name = 'huge';
		UPDATE rolls SET next_number = %[1]d + 1;
		INSERT INTO task_1 (type, id, created_at, order_time, context)
		SELECT type, id, at, at, '{"customer":"c-17"}' FROM made;
		INSERT INTO journal_1 (type, id, seq, at, stage, attempt, outcome, final, error)
		SELECT type, id, 1, at, 'only', 1, CASE WHEN failed THEN 'failed' ELSE 'done' END,
		  CASE WHEN failed THEN 'failed' ELSE 'succeeded' END,
		  CASE WHEN failed THEN 'no answer from shard ' || n %% 7 || ' in 10 s' END FROM made;
		INSERT INTO tallies (type, at, submitted, attempts, failures, succeeded, failed)
		SELECT 'huge', now(), %[1]d, %[1]d, count(*) FILTER (WHERE failed),
		  count(*) FILTER (WHERE NOT failed), count(*) FILTER (WHERE failed) FROM made;
		ANALYZE task_1; ANALYZE journal_1`, n))
	require.NoError(p.t, err)
}

// timeCalls says how long calls of the console take: the median of 11, in ms. id is that of a task.
func (p *page) timeCalls(id string) {
	p.t.Helper()
	for _, path := range []string{"/v1/tasks?type=huge&children=false", "/v1/tasks?children=false",
		"/v1/tasks?type=huge&reverse=true", "/v1/tasks?type=huge&status=failed",
		"/v1/tasks?type=huge&status=pending", "/v1/tasks?type=huge&error=none", "/v1/tasks/count",
		"/v1/tasks/count?children=false", "/v1/tasks/count?type=huge&status=failed",
		"/v1/tasks/count?type=huge&status=pending", "/v1/quota", "/v1/stats", "/v1/failures",
		"/v1/tasks/" + id, "/v1/workers", "/v1/stats/history", "/v1/stats/history?by_type=true&step=5m"} {
		var took []time.Duration
		for range 11 {
			req, err := http.NewRequestWithContext(p.t.Context(), "GET", p.node.URL+path, nil)
			require.NoError(p.t, err)
			req.Header.Set("Authorization", "Bearer "+p.token)
			began := time.Now()
			resp, err := http.DefaultClient.Do(req)
			require.NoError(p.t, err)
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			took = append(took, time.Since(began))
			require.Less(p.t, resp.StatusCode, 300, path)
		}
		slices.Sort(took)
		if limit := quickCalls[path]; *quick && limit > 0 {
			assert.LessOrEqual(p.t, took[5], limit, path)
		}
		p.t.Logf("GET %s: %.1f ms, at most %.1f", path, took[5].Seconds()*1e3,
			took[10].Seconds()*1e3)
	}
}

// quickCalls are the longest times of calls with -quick.
var quickCalls = map[string]time.Duration{
	"/v1/tasks/count": quickCount, "/v1/tasks/count?children=false": quickCount,
	"/v1/quota": quickQuota,
}

// whenRows notes when a page has drawn rows: in the first task after the frame with them.
const whenRows = `new MutationObserver((_, me) => {
	if (!document.querySelector("[data-row]")?.checkVisibility()) return;
	me.disconnect();
	const drawn = new MessageChannel();
	drawn.port1.onmessage = () => (window.rowsAt = performance.now());
	requestAnimationFrame(() => drawn.port2.postMessage(0));
}).observe(document, {childList: true, subtree: true, attributes: true})`

// listTimes are the times of a page with a list, in ms since the navigation to it began.
type listTimes struct {
	Rows  float64 `json:"rows"` // they are drawn
	Steps string  `json:"steps"`
}

// timeLists says how long lists take from the beginning of the navigation, in the browser, until
// their rows are drawn: the median of 11. It also says where the time went.
func (p *page) timeLists() {
	p.t.Helper()
	p.Before(whenRows)
	for _, path := range []string{"/console/tasks?type=huge", "/console/tasks",
		"/console/tasks?type=huge&reverse=true", "/console/tasks?status=failed"} {
		if *ended == 0 && strings.Contains(path, "status") {
			continue
		}
		all := make([]listTimes, 11)
		for i := range all {
			p.open(path)
			p.Run(`return window.rowsAt > 0`)
			all[i] = browsertest.Ask[listTimes](p.t, p.ctx, `({rows: window.rowsAt,
				steps: performance.getEntriesByType("resource")
					.filter(e => e.responseEnd < window.rowsAt).map(e => e.name.replace(/.*[/]/, "") +
						" " + Math.round(e.startTime) + "-" + Math.round(e.responseEnd)).join(", ")})`)
		}
		slices.SortFunc(all, func(a, b listTimes) int { return cmp.Compare(a.Rows, b.Rows) })
		p.t.Logf("rows of %s: after %.0f ms, at most %.0f; in ms: %s", path, all[5].Rows,
			all[10].Rows, all[5].Steps)
		if *quick {
			assert.LessOrEqual(p.t, all[5].Rows, quickRows.Seconds()*1e3, path)
		}
	}
}

// timePages says how long pages take from the address to what they show.
func (p *page) timePages() {
	p.t.Helper()
	for _, one := range []shown{
		{"overview", "/console", "Running"}, {"failures", "/console/failures?last=24h", "Failures"},
		{"type", "/console/types/huge", "Stages"}} {
		var took []time.Duration
		for range 5 {
			began := time.Now()
			p.open(one.path)
			p.See(one.text)
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		p.t.Logf("the page %s: %v, at most %v", one.name, took[2], took[4])
	}
}

// nextPage is how long a page took, in ms.
type nextPage struct {
	Shown float64 `json:"shown"` // from the click to the frame with its rows
	Call  float64 `json:"call"`  // to the server
	Rows  int     `json:"rows"`
}

// turnPage goes to the next page of a list.
const turnPage = `new Promise(done => {
	const first = () => document.querySelector("[data-row]")?.innerText;
	const before = first(), began = performance.now();
	document.querySelector("a[rel=next]").click();
	const look = () => {
		const now = first();
		if (!now || now === before) return requestAnimationFrame(look);
		const call = performance.getEntriesByType("resource").filter(e => /tasks\?/.test(e.name)).pop();
		done({shown: performance.now() - began, call: call.duration,
			rows: document.querySelectorAll("tbody tr").length});
	};
	requestAnimationFrame(look);
})`

// watch leaves the overview open for a time, and says what it takes.
func (p *page) watch(d time.Duration) {
	p.t.Helper()
	p.open("/console")
	p.See("huge")
	began, busy := time.Now(), pgtest.OwnCPU(p.t)
	pace := time.NewTicker(d / 10)
	defer pace.Stop()
	for ; time.Since(began) < d; <-pace.C {
		_, err := chromedp.Call(p.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
		require.NoError(p.t, err)
		heap := browsertest.Ask[int](p.t, p.ctx, `performance.memory.usedJSHeapSize`)
		p.t.Logf("%v: a heap of %.2f MB", time.Since(began).Round(time.Second), float64(heap)/1e6)
	}
	p.t.Logf("this process, with the node, took %.1f %% of a core",
		100*(pgtest.OwnCPU(p.t)-busy).Seconds()/time.Since(began).Seconds())
}
