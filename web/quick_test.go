package web_test

import (
	"cmp"
	"flag"
	"net/http"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

var (
	tasks = flag.Int("tasks", 2000, "how many tasks TestManyTasks makes")
	watch = flag.Duration("watch", 0, "how long TestManyTasks leaves the overview open")
	opens = flag.Int("consoles", 0, "how many consoles TestManyTasks follows beside its own")
)

// A list of many tasks is read page by page. With -v it also says how long a page takes until it is
// shown, and with -watch what an open one takes; docs/console.md has the figures.
func TestManyTasks(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "huge", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
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
	pages := make([]nextPage, 15)
	for i := range pages {
		pages[i] = browsertest.Ask[nextPage](t, p.ctx, turnPage)
		assert.Equal(t, 50, pages[i].Rows)
	}
	slices.SortFunc(pages, func(a, b nextPage) int { return cmp.Compare(a.Shown, b.Shown) })
	t.Logf("the next page, of %d: the quickest after %.0f ms, the median after %.0f ms, of which "+
		"the call took %.0f ms", len(pages), pages[0].Shown, pages[7].Shown, pages[7].Call)
	if *watch > 0 {
		p.watch(*watch)
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
	for range *opens {
		req, err := http.NewRequestWithContext(p.t.Context(), "GET", p.node.URL+"/v1/stats/events",
			nil)
		require.NoError(p.t, err)
		req.Header.Set("Authorization", "Bearer "+p.node.Token)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(p.t, err)
		require.Equal(p.t, 200, resp.StatusCode)
		p.t.Cleanup(func() { _ = resp.Body.Close() })
	}
	p.open("/console")
	p.See("huge")
	began, busy := time.Now(), cpu(p.t)
	pace := time.NewTicker(d / 10)
	defer pace.Stop()
	for ; time.Since(began) < d; <-pace.C {
		_, err := chromedp.Call(p.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
		require.NoError(p.t, err)
		heap := browsertest.Ask[int](p.t, p.ctx, `performance.memory.usedJSHeapSize`)
		p.t.Logf("%v: a heap of %.2f MB", time.Since(began).Round(time.Second), float64(heap)/1e6)
	}
	p.t.Logf("this process, with the node and the ends of %d streams, took %.1f %% of a core",
		*opens, 100*(cpu(p.t)-busy).Seconds()/time.Since(began).Seconds())
}

// cpu returns the CPU time that this process has taken.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var use syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &use))
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}
