package web_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/testnode"
	"github.com/asyncflow/asyncflow/worker"
)

// makeType makes a task type with two stages and a worker. The first stage returns its context; the
// second one fails as long as "fail" is in the context, with a hostile text, or "declined".
func (p *page) makeType(name string) { p.t.Helper(); p.makeTypeAt(name, "") }

// makeTypeAt is makeType, with a path of the worker. It returns the URL of the endpoints.
func (p *page) makeTypeAt(name, path string) string {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "first"},
			{Name: "second", Retry: client.RetryPolicy{MaxAttempts: 1}}}})
	require.NoError(p.t, err)
	w, err := worker.New(worker.Config{Log: slog.New(slog.DiscardHandler), Keys: []string{
		"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))}})
	require.NoError(p.t, err)
	worker.Handle(w, name, "first",
		func(_ context.Context, t worker.Task[json.RawMessage]) (json.RawMessage, error) {
			return t.Context, nil
		})
	worker.Handle(w, name, "second",
		func(_ context.Context, t worker.Task[json.RawMessage]) (json.RawMessage, error) {
			switch {
			case strings.Contains(string(t.Context), "fail"):
				return nil, errors.New(hostile)
			case strings.Contains(string(t.Context), "declined"):
				return nil, errors.New("the card was declined")
			}
			return t.Context, nil
		})
	server := httptest.NewServer(w)
	p.t.Cleanup(server.Close)
	require.NoError(p.t, w.Register(p.t.Context(),
		worker.Registration{Client: p.api, URL: server.URL + path}))
	return server.URL + path
}

// submit submits a task and waits for its end.
func (p *page) submit(taskType, doc string, end client.Status) string {
	p.t.Helper()
	task, err := p.api.Submit(p.t.Context(),
		client.NewTask{Type: taskType, Context: client.JSON(doc)})
	require.NoError(p.t, err)
	ended, err := p.api.Wait(p.t.Context(), task.ID, patience)
	require.NoError(p.t, err)
	require.Equal(p.t, end, ended.Status)
	return task.ID
}

func TestLogin(t *testing.T) {
	p := openAlways(t)
	p.open("/console/tasks?type=x")
	p.Fill("Token", "no.good.token")
	p.Click("Log in")
	p.See("token")
	p.Run(`return !!document.querySelector("[role=alert]")`)
	token, err := p.node.NewToken(time.Hour, auth.ScopeRead)
	require.NoError(t, err)
	p.Fill("Token", token)
	p.Click("Log in")
	p.See("Log out")
	assert.Empty(t, browsertest.Ask[string](t, p.ctx, `document.cookie`), "scripts can't read it")
	p.open("/console")
	p.See("Overview")
	p.Click("Log out")
	p.See("A token of the API")
	p.open("/console/tasks")
	p.See("A token of the API")
	p.quiet("401", "/v1/tasks?type=x") // there is no such type
}

// A failed task is found by its error, read, and redriven with an edited context. Large numbers
// and hostile texts are shown as they are.
func TestRedriveAFailedTask(t *testing.T) {
	p := openAlways(t, all...)
	p.makeType("redrive")
	doc := `{"n":12345678901234567890.10,"fail":true,"html":` + browsertest.Quote(hostile) + `}`
	id := p.submit("redrive", doc, client.StatusFailed)
	other := p.submit("redrive", `{"n":1}`, client.StatusSucceeded)

	p.open("/console/tasks?type=redrive&text=nothing+has+this")
	p.See("No task matches")
	p.Fill("Text in context or outputs", "12345678901234567890.10")
	p.Click("Search")
	p.See(id)
	p.Gone(other)
	p.open("/console/tasks?type=redrive")
	p.See(other)
	p.Fill("Status", "failed")
	p.See(id)
	p.Gone(other)
	p.Click(id)
	p.See("12345678901234567890.10")
	p.See(`onerror=`)
	p.See("second attempt 1: failed")
	assert.Contains(t, browsertest.Ask[string](t, p.ctx, `location.pathname`), id)
	p.Run(`return document.title === ` + browsertest.Quote(id+" – asyncflow"))

	p.Click("Redrive")
	p.Fill("From stage", "first")
	p.Fill("With another context", "")
	assert.JSONEq(t, doc, p.Value("Context"))
	p.Fill("Context", `{"n":12345678901234567890.10,"html":"fine"}`)
	p.Click("Redrive")
	p.See("The task is redriven")
	p.See("succeeded")
	task, err := p.api.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, `{"n":12345678901234567890.10,"html":"fine"}`, string(task.Result))
	assert.False(t, browsertest.Ask[bool](t, p.ctx, `"hit" in window`), "no text was run")
	p.quiet()
}

// All tasks that match are redriven, after their count was shown.
func TestRedriveAllThatMatch(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("many")
	for range 3 {
		p.submit("many", `{"fail":true}`, client.StatusFailed)
	}
	p.open("/console/tasks?type=many&status=failed")
	p.Click("Redrive all that match")
	p.See("3 tasks, failed")
	p.Click("Redrive all that match")
	p.See("Redrive all that match: started")
	require.Eventually(t, func() bool {
		page, err := p.api.Operations(t.Context())
		require.NoError(t, err)
		for _, o := range page {
			if o.Type == "many" {
				return o.Done == 3
			}
		}
		return false
	}, patience, 10*time.Millisecond)
}

// All tasks that match run again, with a context that is patched: numbers keep their digits.
func TestRunAgainAllThatMatch(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("again")
	old := p.submit("again", `{"n":1.50,"footer":"old"}`, client.StatusSucceeded)
	p.open("/console/tasks?type=again&status=succeeded")
	p.Click("Run all that match again")
	p.See("1 task, succeeded")
	p.Fill("JSON merge patch of each context", `{"footer":"new",}`)
	p.Click("Run all that match again")
	p.See("body is not valid JSON")
	p.Fill("JSON merge patch of each context", `{"footer":"new","big":12345678901234567890}`)
	p.Click("Run all that match again")
	p.See("Run all that match again: started")
	require.Eventually(t, func() bool {
		for task, err := range p.api.All(t.Context(), client.ListParams{Type: "again"}) {
			require.NoError(t, err)
			if task.RerunOf == old {
				made, err := p.api.Get(t.Context(), task.ID)
				require.NoError(t, err)
				return assert.Equal(t, `{"n":1.50,"footer":"new","big":12345678901234567890}`,
					string(made.Context))
			}
		}
		return false
	}, patience, 10*time.Millisecond)
}

// The tasks in line that match get another priority.
func TestPriorityOfAllThatMatch(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("prioritised")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "prioritised",
		Context: client.JSON(`1`), Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.open("/console/tasks?type=prioritised&status=waiting")
	p.Click("Change priority of all that match")
	p.See("1 task, waiting")
	p.Fill("Head start in seconds", "60")
	p.Click("Change priority of all that match")
	p.See("Changed 1 task")
	changed, err := p.api.Get(t.Context(), task.ID)
	require.NoError(t, err)
	assert.Equal(t, `60`, string(encoded(t, changed.Priority)))
}

func encoded(t *testing.T, v any) []byte {
	t.Helper()
	doc, err := json.Marshal(v)
	require.NoError(t, err)
	return doc
}

// A task that waits for its children is paused, resumed and cancelled; the page says why it waits.
func TestPauseAndCancelATask(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "wait", client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "split", FanOut: &asyncflow.FanOut{Shards: 2}}}})
	require.NoError(t, err)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "wait", Context: client.JSON(`1`)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.See("It waits for its children.")
	p.See("2 in all: 2 waiting")
	p.See("split attempt 1: fanned out")
	p.Click("Pause")
	p.Fill("Reason", "a look")
	p.Click("Pause")
	p.See("It is paused: a look.")
	p.Click("Resume")
	p.See("It waits for its children.")
	p.Click("Cancel")
	p.See("A cancelled task doesn't go on.")
	p.Click("Cancel")
	p.See("The task is cancelled")
	p.See("2 in all: 2 cancelled")
	p.quiet()
}

// A list says when the next attempt is due, as long as that is to come.
func TestNextAttempt(t *testing.T) {
	p := openPage(t, all...)
	p.failing("next")
	_, err := p.api.PutTaskType(t.Context(), "next", client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "only", Retry: client.RetryPolicy{MaxAttempts: 3,
			Interval: asyncflow.Seconds(0.1, 3600)}}}})
	require.NoError(t, err)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "next", Context: client.JSON(`1`)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	line := func(attempt string) string {
		return `words([...document.querySelectorAll(".attempts > li > div")].find(e =>
			words(e).startsWith("only attempt ` + attempt + `: failed")))`
	}
	p.Run(`return ` + line("2") + `.includes(", next in ")`)
	p.Run(`return ` + line("1") + ` && !` + line("1") + `.includes("next")`)
	p.quiet()
}

// A type without tasks offers nothing for all that match, and no filter to remove.
func TestTypeWithoutTasks(t *testing.T) {
	p := openPage(t, all...)
	p.delayedTasks("unused", 0)
	p.open("/console/tasks?type=unused")
	p.See("unused has no tasks yet Submit one: asyncflow tasks submit unused '{}'")
	assert.NotContains(t, p.Text(), "Remove the filters")
	assert.NotContains(t, p.Text(), "match")
	p.Fill("Status", "waiting")
	p.See("No task matches Remove the filters")
	assert.NotContains(t, p.Text(), "all that match")
	p.delayedTasks("unused", 1)
	p.Click("Cancel all that match")
	p.See("1 task, waiting")
	_, err := p.api.CancelAll(t.Context(), client.BulkCancellation{Type: "unused"})
	require.NoError(t, err)
	p.See("No task matches")
	p.Run(`return where.matches("dialog")`) // an open question stays
	p.Click("Back")
	p.Run(`return !where.matches("dialog") && !called("button", "Cancel all that match")`)
	p.quiet()
}

// Who may only read sees no button that would fail.
func TestReadOnly(t *testing.T) {
	p := openAlways(t, auth.ScopeRead)
	p.makeType("readonly")
	id := p.submit("readonly", `{"fail":true}`, client.StatusFailed)
	p.open("/console/tasks?type=readonly")
	p.See(id)
	assert.NotContains(t, p.Text(), "that match")
	p.open("/console/tasks/" + id)
	p.See("Attempts")
	assert.NotContains(t, p.Text(), "Redrive")
	for path, title := range map[string]string{"alerts": "Alerts", "audit": "Audit"} {
		p.open("/console/" + path)
		p.See(title + " Docs This page needs the scope manage.")
		p.Run(`return !called("header a", ` + browsertest.Quote(title) + `)`)
	}
	p.open("/console/none")
	p.See("There is no such page")
	p.quiet()
}

// A session ends with its token. The page stays with what was typed, and goes on after a login.
func TestSessionEnds(t *testing.T) {
	p := openAlways(t, all...)
	p.makeType("session")
	task, err := p.api.Submit(t.Context(),
		client.NewTask{Type: "session", Context: client.JSON(`1`),
			Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.Click("Cancel")
	p.Fill("Reason", "typed before")
	// What a token's end does: the cookie goes, and the next call is refused.
	require.Equal(t, 204, browsertest.Ask[int](t, p.ctx,
		`fetch("/console/logout", {method: "POST"}).then(r => r.status)`))
	p.Click("Cancel")
	p.See("Your session has ended")
	token, err := p.node.NewToken(time.Hour, all...)
	require.NoError(t, err)
	p.Fill("Token", token)
	p.Click("Log in")
	p.Gone("Your session has ended")
	assert.Equal(t, "typed before", p.Value("Reason"))
	p.Click("Cancel")
	p.See("The task is cancelled")
	p.See("typed before")
	p.quiet("401")
}

// Rows are reached by the keyboard.
func TestKeys(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("keys")
	first := p.submit("keys", `1`, client.StatusSucceeded)
	second := p.submit("keys", `2`, client.StatusSucceeded)
	p.open("/console/tasks?type=keys")
	p.See(first)
	p.See(second)
	press := func(keys string) { require.NoError(t, chromedp.Do(p.ctx, chromedp.KeyEvent(keys))) }
	press("?")
	p.See("previous row")
	press("\x1b")
	p.Run(`return !document.querySelector("dialog")`) // while it is there, it takes the keys
	press("/")
	p.Run(`return document.activeElement.matches("[data-search]")`)
	require.NoError(t, chromedp.Do(p.ctx, chromedp.Focus(chromedp.CSS("main"))))
	press("j")
	press("j")
	press("k")
	p.Run(`return words(document.activeElement) === ` + browsertest.Quote(second))
	press("\r")
	p.See("Context")
	press("/") // the page of a task has no search: that of the tasks is meant
	p.Run(`return location.pathname === "/console/tasks" &&
		document.activeElement.matches("[data-search]")`)
	p.open("/console/tasks/" + second)
	p.See("Context")
	assert.Contains(t, browsertest.Ask[string](t, p.ctx, `location.pathname`), second)
}

// Whoever has no list of tasks stays on a page without a search when the key / is pressed.
func TestKeysWithoutTasks(t *testing.T) {
	t.Parallel()
	operator, err := testnode.Shared().OperatorToken()
	require.NoError(t, err)
	manager, err := testnode.Shared().NewToken(time.Hour, auth.ScopeManage)
	require.NoError(t, err)
	for _, c := range []struct{ who, token, path, see string }{
		{"an operator", operator, "/console/tenants", "Tenants"},
		{"a manager", manager, "/console/alerts", "Alerts"},
	} {
		t.Run(c.who, func(t *testing.T) {
			p := openPage(t)
			p.enter(c.token)
			p.open(c.path)
			p.See(c.see)
			press := func(key string) {
				require.NoError(t, chromedp.Do(p.ctx, chromedp.KeyEvent(key)))
			}
			press("/")
			press("?") // is shown on the page that / leads to
			p.See("previous row")
			text := p.Text()
			assert.Contains(t, text, "go to the search of the page, if it has one")
			assert.NotContains(t, text, "find a task")
			assert.NotContains(t, text, "There is no such page")
			assert.Equal(t, c.path, browsertest.Ask[string](t, p.ctx, `location.pathname`))
			press("\x1b")
			p.Run(`return !document.querySelector("dialog")`)
			p.open("/console/audit")
			p.Run(`return !!document.querySelector("[data-search]")`)
			press("/")
			p.Run(`return document.activeElement.matches("[data-search]")`)
		})
	}
}

// The overview follows what happens, but not while it is paused or its tab can't be seen. Another
// page shows that the server sent the numbers.
func TestOverviewIsLive(t *testing.T) {
	p := openAlways(t, all...)
	p.makeType("live")
	other := &page{Page: browsertest.Open(t), t: t, node: p.node}
	other.ctx = other.Context
	other.logIn(p.token)
	p.open("/console")
	p.See("live")
	const cell = `words(document.querySelector('td a[href*="type=live&status=succeeded"]'))`
	succeeded := func(n int) string {
		return `return ` + cell + ` === "` + strconv.Itoa(n) + `"`
	}
	shown := 0
	p.Run(succeeded(shown))
	p.submit("live", `1`, client.StatusSucceeded)
	shown++
	p.Run(succeeded(shown))
	// What was sent to the other page before the last number is also here, if it was sent to it.
	still := func() {
		p.t.Helper()
		for n := shown + 1; n <= shown+2; n++ {
			p.submit("live", `1`, client.StatusSucceeded)
			other.Run(succeeded(n))
		}
		assert.True(t, browsertest.Ask[bool](t, p.ctx, `(() => {
			const words = e => (e?.innerText ?? "").replace(/\s+/g, " ").trim();
			`+succeeded(shown)+`})()`), "the number has not changed")
		shown += 2
	}
	p.Click("❚❚ Pause")
	p.See("▶ Resume")
	still()
	p.Click("▶ Resume")
	p.Run(succeeded(shown))

	turn := func(hidden bool) {
		p.Run(`Object.defineProperty(document, "hidden", {value: ` + strconv.FormatBool(hidden) +
			`, configurable: true});
			Object.defineProperty(document, "visibilityState",
				{value: document.hidden ? "hidden" : "visible", configurable: true});
			document.dispatchEvent(new Event("visibilitychange")); return true`)
	}
	turn(true)
	still()
	turn(false)
	p.Run(succeeded(shown))
	p.quiet()
}

// The page of a task says when it expired, and a redrive gives it another lifetime: without one it
// is refused. Its type says how many tasks expired.
func TestRedriveAnExpiredTask(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("quote")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "quote", Context: client.JSON(`1`),
		EndBy: asyncflow.DeadlineAt(time.Now().Add(-time.Hour))})
	require.NoError(t, err)
	p.open("/console/types/quote")
	p.See("1 expired")
	p.open("/console/tasks/" + task.ID)
	p.See("Must end by")
	p.See("Expired")
	p.Click("Redrive")
	p.Run(`return where.matches("dialog")`)
	p.Click("Redrive")
	p.See("the lifetime of the task is over")
	p.Fill("Must end by", "1h")
	p.Click("Redrive")
	p.See("The task is redriven")
	p.See("succeeded")
	got, err := p.api.Get(t.Context(), task.ID)
	require.NoError(t, err)
	assert.True(t, got.Lifetime.EndBy.After(time.Now()))
	p.quiet("409", "/v1/tasks/"+task.ID+"/redrive")
}
