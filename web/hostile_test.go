package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/worker"
)

// hostile is a text that would run a script if the page took it for HTML, a template or a URL. It
// also turns around the direction of what stands beside it.
const hostile = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>"'&` +
	`"><svg onload=window.hit=1>javascript:window.hit=1//${window.hit=1}{{window.hit=1}}` +
	"\u202etxet\u2066"

// hostileWord is such a text without spaces, in ASCII: what claimers may be called.
const hostileWord = `"><img/src=x/onerror=window.hit=1><script>window.hit=1</script>`

// hostileReason is such a text, with a word that is wider than any page.
var hostileReason = hostile + wideWord

var wideWord = strings.Repeat("W", 250)

// hostileScope is such a text without quotes, which can't be in scopes.
var hostileScope = strings.ReplaceAll(hostileWord, `"`, "'")

// hostileRule is a rule of pauses with such a text.
var hostileRule = client.Rule(`error == ` + literal(hostileWord) + ` ? 1 : 2`)

// hostilePointer leads to the member hostileWord.
var hostilePointer = "/" + strings.ReplaceAll(hostileWord, "/", "~1")

// intruders is what a page did that it must not do.
type intruders struct {
	mu   sync.Mutex
	seen []string
	page cdp.LoaderID               // what the browser shows, or is about to show
	open map[network.RequestID]bool // requests of page without an answer so far, but for streams
}

// loaded reports whether all that was asked for is there.
func (i *intruders) loaded() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.open) == 0
}

// begin notes a request. A request for another page makes it the page that counts: the requests of
// the page that is left, such as one that it makes just then, may get no answer.
func (i *intruders) begin(ev *network.EventRequestWillBeSent) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if string(ev.RequestID) == string(ev.LoaderID) {
		i.page = ev.LoaderID
		clear(i.open)
	}
	if ev.LoaderID == i.page && !strings.Contains(ev.Request.URL, "/events") {
		i.open[ev.RequestID] = true
	}
}

func (i *intruders) end(id network.RequestID) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.open, id)
}

func (i *intruders) add(what string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen = append(i.seen, what)
}

// guard notes each dialog, and each request that goes elsewhere than to the node.
func (p *page) guard() *intruders {
	p.t.Helper()
	i := &intruders{open: map[network.RequestID]bool{}}
	require.NoError(p.t, chromedp.Listen(p.ctx, func(ev any) {
		switch ev := ev.(type) {
		case *cdppage.EventJavascriptDialogOpening:
			i.add("a dialog: " + ev.Message)
		case *network.EventLoadingFinished:
			i.end(ev.RequestID)
		case *network.EventLoadingFailed:
			i.end(ev.RequestID)
		case *network.EventRequestWillBeSent:
			i.begin(ev)
			if u := ev.Request.URL; !strings.HasPrefix(u, p.node.URL+"/") &&
				!strings.HasPrefix(u, "data:image/") {
				i.add("a request to " + u)
			}
		}
	}))
	_, err := chromedp.Call(p.ctx, network.Enable, network.EnableParams{})
	require.NoError(p.t, err)
	_, err = chromedp.Call(p.ctx, cdppage.Enable, cdppage.EnableParams{})
	require.NoError(p.t, err)
	return i
}

// Whatever a tenant, a submitter, a worker or a link says is text: it is shown as it is, and
// nothing of it runs, on no page. No page gets wider than the screen by it.
func TestHostileTexts(t *testing.T) {
	p := openAlwaysOf(t, "hostile")
	i := p.guard()
	check := func(path string, texts ...string) {
		t.Helper()
		p.open(path)
		p.See("Log out")
		for _, text := range append(texts, "") {
			p.Run(`document.querySelectorAll("details:not([open]) > summary").forEach(s => s.click());
				return words(document.body).includes(` +
				browsertest.Quote(strings.Join(strings.Fields(text), " ")) + `)`)
		}
		require.Eventually(t, i.loaded, patience, 10*time.Millisecond, "%s %v", path, i)
		assert.Equal(t, "", browsertest.Ask[string](t, p.ctx, `["hit" in window && "a script",
			...[...document.querySelectorAll("img:not(.brand img), script:not([src]), [onerror], [onload]")]
				.map(e => e.outerHTML),
			...[...document.querySelectorAll("[href]")].map(e => e.href)
				.filter(h => !/^(https?|data):/.test(h)),
			...[...document.querySelectorAll("[href^='//']")].map(e => e.href)].filter(Boolean).join("\n")`),
			path)
		for _, width := range []int64{360, 1280} {
			p.resize(width, 900)
			p.fits(width)
		}
	}
	for _, one := range p.hostilePages() {
		check(one.path, one.texts...)
	}
	p.Click("Log out")
	p.See("A token of the API")
	_, err := p.operator().SuspendTenant(t.Context(), "hostile", hostileReason)
	require.NoError(t, err)
	operator, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.logIn(operator)
	check("/console/tenants", hostile)
	check("/console/tenants/hostile", hostile)
	check("/console/tenants/"+url.PathEscape(hostileWord), hostileWord)
	check("/console/audit", "hostile")
	check("/console/governance", "testnode")
	assert.Empty(t, i.seen)
	p.quiet("/v1/") // what a made-up address doesn't find
}

// hostilePage is a page, and the texts that it must show.
type hostilePage struct {
	path  string
	texts []string
}

// hostilePages sets all texts that can be set by calls and by workers, and returns the pages that
// show them.
func (p *page) hostilePages() []hostilePage {
	p.t.Helper()
	t, ctx := p.t, p.t.Context()
	p.makeType("invoices")
	quoted := literal(hostile)
	doc := `{` + quoted + `:` + quoted + `,"fail":1}`
	failed, err := p.api.Submit(ctx, client.NewTask{Type: "invoices", Context: client.JSON(doc),
		Key: hostile, FlowKey: hostile})
	require.NoError(t, err)
	ended, err := p.api.Wait(ctx, failed.ID, patience)
	require.NoError(t, err)
	require.Equal(t, client.StatusFailed, ended.Status)
	long := p.submit("invoices", literal(hostile+strings.Repeat("x", 70_000)),
		client.StatusSucceeded)
	cancelled, err := p.api.Submit(ctx, client.NewTask{Type: "invoices", Context: client.JSON(`1`),
		Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	_, err = p.api.Cancel(ctx, cancelled.ID, hostileReason)
	require.NoError(t, err)

	split := p.pausedTask()
	voted, slow := p.claimedTasks()
	endpoint := p.refusingEndpoint()
	_, err = p.api.PutSchedule(ctx, "nightly", client.ScheduleSpec{Type: "invoices",
		Cron: "0 3 * * *", Context: client.JSON(doc), TimeZone: "America/Argentina/Buenos_Aires",
		DependsOn: []client.Dependency{{Type: "invoices", Key: hostile}},
		Retry:     client.RetryPolicy{Interval: hostileRule}})
	require.NoError(t, err)
	operation, err := p.api.CancelAll(ctx, client.BulkCancellation{Type: "invoices", Error: hostile,
		Reason: hostileReason})
	require.NoError(t, err)
	waiting, err := p.api.Submit(ctx, client.NewTask{Type: "invoices", Context: client.JSON(`1`),
		DependsOn: []client.Dependency{{Type: "invoices", Key: hostile + "later"}},
		Retry:     client.RetryPolicy{Interval: hostileRule}})
	require.NoError(t, err)
	_, err = p.api.PauseTaskType(ctx, "invoices", hostileReason)
	require.NoError(t, err)
	p.post("/v1/task-types/split/pause", `{"reason":`+literal(hostile)+`}`, hostile)

	word := url.QueryEscape(hostileWord)
	return []hostilePage{
		{"/console", []string{"invoices", "paused"}},
		{"/console/tasks?type=invoices&status=cancelled", []string{hostile}},
		{"/console/tasks?type=invoices&error=" + url.QueryEscape(hostile), nil},
		{"/console/tasks/" + failed.ID, []string{hostile, quoted + ": " + quoted}},
		{"/console/tasks/" + long, []string{quoted[:len(quoted)-1] + "xxx"}},
		{"/console/tasks/" + cancelled.ID, []string{hostile}},
		{"/console/tasks/" + split, []string{"It is paused: " + hostile}},
		{"/console/tasks/" + voted, []string{hostileWord + "0 (token of test): " + quoted}},
		{"/console/tasks/" + slow, []string{hostile}},
		{"/console/types", []string{hostile}},
		{"/console/types/invoices", []string{hostile}},
		{"/console/tasks/" + waiting.ID, []string{hostile + "later"}},
		{"/console/types/rules", []string{hostilePointer, `error == ` + literal(hostileWord)}},
		{"/console/types/fanned", []string{hostilePointer}},
		{"/console/endpoints?type=refusing", []string{endpoint.URL}},
		{"/console/endpoints/" + endpoint.ID, []string{endpoint.URL, "basic, as " + hostileWord}},
		{"/console/endpoints/" + p.endpointWithTokens(),
			[]string{"oauth2, " + hostileWord + " at "}},
		{"/console/schedules", []string{"America/Argentina/Buenos_Aires"}},
		{"/console/schedules/nightly", []string{"Depends on"}},
		{"/console/operations", []string{"invoices"}},
		{"/console/operations?id=" + operation.ID, []string{hostile}},
		{"/console/alerts", []string{p.hostileAlerts()}},
		{"/console/audit", []string{"User agent " + hostile}},
		// What a link can say.
		{"/console/tasks?type=" + word + "&status=" + word + "&stage=" + word, nil},
		{"/console/tasks?type=invoices&parent=javascript:window.hit=1&since=" + word, nil},
		{"/console/tasks/" + url.PathEscape(hostileWord), nil},
		{"/console/types/" + url.PathEscape(hostileWord), []string{hostileWord}},
		{"/console/endpoints?type=" + word + "&stage=" + word, nil},
		{"/console/endpoints/" + url.PathEscape(hostileWord), []string{hostileWord}},
		{"/console/schedules/" + url.PathEscape(hostileWord), []string{hostileWord}},
		{"/console/operations?id=" + word + "&cursor=" + word, nil},
		{"/console/audit?action=" + word + "&subject=" + word + "&outcome=" + word, nil},
		{"/console/" + url.PathEscape(hostileWord), []string{"There is no such page"}},
	}
}

// literal returns a text as JSON with < and & as they are.
func literal(text string) string {
	var doc strings.Builder
	plain := json.NewEncoder(&doc)
	plain.SetEscapeHTML(false)
	if err := plain.Encode(text); err != nil {
		panic(err)
	}
	return strings.TrimSpace(doc.String())
}

// pausedTask returns a task that waits for its children, and is paused for a hostile reason.
func (p *page) pausedTask() string {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), "split", client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "split", FanOut: &asyncflow.FanOut{Shards: 2}}}})
	require.NoError(p.t, err)
	task, err := p.api.Submit(p.t.Context(), client.NewTask{Type: "split",
		Context: client.JSON(literal(hostile))})
	require.NoError(p.t, err)
	require.Eventually(p.t, func() bool {
		_, err := p.api.Pause(p.t.Context(), task.ID, hostileReason)
		return err == nil
	}, patience, 10*time.Millisecond)
	return task.ID
}

// claimedTasks returns a task that a claimer with a hostile name voted on, and one that it works on
// and said hostile things about. The rules of the type are hostile.
func (p *page) claimedTasks() (voted, slow string) {
	p.t.Helper()
	t := p.t
	_, err := p.api.PutTaskType(t.Context(), "rules", client.TaskTypeSpec{Stages: []client.Stage{{
		Name: "judge", Mode: asyncflow.ModeClaim,
		Quorum: &asyncflow.Quorum{Votes: 2, MaxVotes: 2, AgreeOn: hostilePointer},
		Retry:  client.RetryPolicy{Interval: hostileRule}}}})
	require.NoError(t, err)
	pointer := asyncflow.Pointer(hostilePointer)
	_, err = p.api.PutTaskType(t.Context(), "fanned", client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "each", FanOut: &asyncflow.FanOut{Items: pointer, Shared: hostilePointer}},
		{Name: "join"}}})
	require.NoError(t, err)
	_, err = p.api.PutTaskType(t.Context(), "slow", client.TaskTypeSpec{Stages: []client.Stage{{
		Name: "work", Mode: asyncflow.ModeClaim}}})
	require.NoError(t, err)
	w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	worker.Handle(w, "rules", "judge", func(
		context.Context, worker.Task[json.RawMessage],
	) (json.RawMessage, error) {
		return json.RawMessage(`{` + literal(hostileWord) + `:` + literal(hostile) + `}`), nil
	})
	told := make(chan error, 1)
	worker.Handle(w, "slow", "work", func(
		ctx context.Context, task worker.Task[json.RawMessage],
	) (worker.None, error) {
		told <- task.Progress(ctx, 50, hostileReason)
		<-ctx.Done()
		return worker.None{}, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	claim := func(claimer, taskType, stage string) {
		ended <- w.Claim(ctx, worker.Claims{Client: p.api, Claimer: claimer}, taskType, stage)
	}
	for n := range 2 {
		go claim(fmt.Sprint(hostileWord, n), "rules", "judge")
	}
	go claim(hostileWord, "slow", "work")
	t.Cleanup(func() {
		stop()
		for range 3 {
			if err := <-ended; err != nil { // perhaps the test suspended the tenant already
				assert.ErrorContains(t, err, "tenant_suspended")
			}
		}
		expired, cancel := context.WithCancel(context.Background())
		cancel()
		_ = w.Close(expired)
	})
	voted = p.submit("rules", literal(hostile), client.StatusSucceeded)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "slow", Context: client.JSON(`1`)})
	require.NoError(t, err)
	require.NoError(t, <-told)
	return voted, task.ID
}

// refusingEndpoint returns an endpoint that answered its challenge with a hostile text, with
// hostile settings.
func (p *page) refusingEndpoint() client.Endpoint {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), "refusing", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(p.t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, hostileReason, http.StatusTeapot)
	}))
	p.t.Cleanup(server.Close)
	e, err := p.api.CreateEndpoint(p.t.Context(),
		client.NewEndpoint{Type: "refusing", Stage: "only", URL: server.URL + "/" +
			url.PathEscape(hostile) + "?" + hostileWord + wideWord,
			Headers: map[string]string{"X-!#$%&'*+.^_|~": hostileWord + wideWord},
			Auth:    asyncflow.EndpointAuth{Kind: "basic", Username: hostileWord, Password: "x"}})
	require.NoError(p.t, err)
	return e
}

// endpointWithTokens returns the id of an endpoint with a hostile login at an issuer.
func (p *page) endpointWithTokens() string {
	p.t.Helper()
	e, err := p.api.CreateEndpoint(p.t.Context(),
		client.NewEndpoint{Type: "refusing", Stage: "only",
			URL: "http://127.0.0.1:1/tokens", Auth: asyncflow.EndpointAuth{Kind: "oauth2",
				TokenURL: "http://127.0.0.1:1/?" + hostileWord + wideWord, ClientID: hostileWord,
				ClientSecret: "x", Scopes: []string{hostileScope}}})
	require.NoError(p.t, err)
	return e.ID
}

// hostileAlerts sends alerts to a hostile address, and returns it.
func (p *page) hostileAlerts() string {
	p.t.Helper()
	set, err := p.api.PutAlerts(p.t.Context(), client.NewAlerts{
		URL:   "http://127.0.0.1:1/?" + hostileWord + wideWord,
		Rules: client.AlertRules{FailureRate: 0.5}})
	require.NoError(p.t, err)
	return set.URL
}
