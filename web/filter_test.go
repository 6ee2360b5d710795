package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// Nothing is done to all that match while the list doesn't follow what is typed.
func TestTypedTextIsNoFilterYet(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("typed")
	p.submit("typed", `{"fail":true}`, client.StatusFailed)
	p.submit("typed", `{"declined":true}`, client.StatusFailed)
	p.open("/console/tasks?type=typed")
	p.See("Redrive all that match")
	p.Click("More filters")
	p.Fill("Text in the error", "declined")
	p.See("choose Search first")
	p.Gone("Redrive all that match")
	p.Fill("Text in the error", " ")
	p.See("Redrive all that match")
	p.Fill("Text in the error", "declined")
	p.Gone("Redrive all that match")
	p.Click("Search")
	p.Click("Redrive all that match")
	p.See("1 task, failed")
	p.Click("Back")
	p.Fill("Text in the error", "")
	p.Gone("Redrive all that match")
}

// What can't be loaded because the server is away is loaded once it is back, also on a paused page.
func TestPageComesBack(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("back")
	id := p.submit("back", `1`, client.StatusSucceeded)
	p.open("/console/types")
	p.See("back")
	block := func(patterns ...*network.BlockPattern) {
		t.Helper()
		_, err := chromedp.Call(p.ctx, network.SetBlockedURLs,
			network.SetBlockedURLsParams{URLPatterns: patterns})
		require.NoError(t, err)
	}
	block(&network.BlockPattern{URLPattern: "*://*:*/v1/*", Block: true})
	p.Click("Tasks")
	p.See("The server can't be reached")
	block()
	p.Gone("The server can't be reached")
	p.Fill("Type", "back")
	p.See(id)
	p.Click("❚❚ Pause")
	for _, page := range []string{"Types", "Overview"} {
		block(&network.BlockPattern{URLPattern: "*://*:*/v1/*", Block: true})
		p.Click(page)
		p.See("The server can't be reached")
		block()
		p.Gone("The server can't be reached")
		p.See("back")
	}
	p.See("▶ Resume")
}

// Long words widen no page, and an error keeps its lines.
func TestLongValues(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("long")
	key := strings.Repeat("k", 255)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "long", Key: key, FlowKey: key,
		Context: client.JSON(`{"` + key + `":"fail` + strings.Repeat("x", 5000) + `"}`)})
	require.NoError(t, err)
	_, err = p.api.Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	endpoint, err := p.api.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "long",
		Stage: "first", URL: "http://127.0.0.1:9/" + strings.Repeat("u", 1900), Weight: new(int)})
	require.NoError(t, err)
	p.resize(1280, 900)
	for path, text := range map[string]string{
		"/console/tasks/" + task.ID:           key,
		"/console/tasks?type=long&key=" + key: task.ID,
		"/console/endpoints":                  "uuuu",
		"/console/endpoints/" + endpoint.ID:   "uuuu",
		"/console/types/long":                 "long",
		"/console/audit":                      "long",
	} {
		p.open(path)
		p.See(text)
		p.fits(1280)
	}
	p.open("/console/tasks/" + task.ID)
	p.Run(`const all = [...document.querySelectorAll(".problem")]; return all.length >= 2 &&
		all.every(e => getComputedStyle(e).whiteSpace === "pre-wrap")`)
}

// One field finds a task by its id, its idempotency key, its user, or a text in it.
func TestFindATask(t *testing.T) {
	p := openPageOf(t, "seekers")
	p.makeType("sought")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "sought", Key: "order-4711",
		User: "sought-ada", Context: client.JSON(`{"picture":"sought-harbour"}`)})
	require.NoError(t, err)
	find := func(text, want string) {
		t.Helper()
		p.open("/console/tasks")
		p.Fill("Find by id", text)
		p.Click("Search")
		p.Run("return location.pathname + decodeURIComponent(location.search) === " +
			string(encoded(t, want)))
		p.See(task.ID)
	}
	find("order-4711", "/console/tasks?key=order-4711")
	find("sought-ada", "/console/tasks?user=sought-ada")
	find("sought-harbour", "/console/tasks?text=sought-harbour")
	find(task.ID, "/console/tasks/"+task.ID)
	p.quiet()
}

// Each field of the filter finds its task among the tasks of all types. A change of all tasks that
// match goes by the same filter.
func TestEachFieldFindsItsTask(t *testing.T) {
	p := openPageOf(t, "fields")
	p.answering("sought-in", func() int { return http.StatusServiceUnavailable })
	p.answering("other-in", func() int { return http.StatusUnprocessableEntity })
	submit := func(task client.NewTask, taskType, context string) client.Task {
		t.Helper()
		task.Type, task.Context = taskType, client.JSON(context)
		made, err := p.api.SubmitAndWait(t.Context(), task, patience)
		require.NoError(t, err)
		require.Equal(t, client.StatusFailed, made.Status)
		return made
	}
	sought := submit(client.NewTask{Key: "the-key", FlowKey: "the-flow", User: "ada",
		Tags: []string{"eu", "all"}, Metadata: map[string]string{"order": "17"},
		Retry: client.RetryPolicy{MaxAttempts: 2, Interval: client.Seconds(-0.1)}},
		"sought-in", `"the-text"`)
	submit(client.NewTask{Key: "a-key", FlowKey: "a-flow", User: "bob", Tags: []string{"us", "all"},
		Metadata: map[string]string{"order": "18"},
		Retry:    client.RetryPolicy{MaxAttempts: 1}}, "other-in", `"a-text"`)
	fields := map[string][2]string{ // by their names in a URL
		"key":         {"Idempotency key", "the-key"},
		"user":        {"User", "ada"},
		"metadata":    {"Metadata", "order=17"},
		"tags":        {"Tags, all of them", "all,eu"},
		"any_tags":    {"Tags, one of them", "eu,nobody"},
		"flow_key":    {"Flow key", "the-flow"},
		"code":        {"Error code", "503"},
		"fingerprint": {"Kind of the error", sought.Fingerprint},
		"attempts":    {"Attempts at least", "2"},
		"error":       {"Text in the error", sought.Error},
		"text":        {"Text in context or outputs", "the-text"},
	}
	for name, field := range fields {
		t.Log(name)
		p.open("/console/tasks")
		p.See("2 tasks match")
		p.Click("More filters")
		p.Fill(field[0], field[1])
		p.Click("Search")
		p.Run("return new URLSearchParams(location.search).get(" + browsertest.Quote(name) +
			") === " + browsertest.Quote(field[1]))
		p.See("More filters (1)") // and it is open
		p.Run(`return document.querySelector("[name=` + name + `]").checkVisibility()`)
		p.Run(`const all = [...document.querySelectorAll("[data-row]")];
			return all.length === 1 && words(all[0]).includes(` + browsertest.Quote(sought.ID) + `)`)
	}
	query := url.Values{"status": {"failed"}}
	for name, field := range fields {
		if name != "text" { // no change of all that match goes by it
			query.Set(name, field[1])
		}
	}
	p.open("/console/tasks?" + query.Encode())
	p.Click("Redrive all that match")
	p.See("1 task, failed")
	p.Click("Redrive all that match")
	p.See("Redrive all that match: started")
	all, err := p.api.Operations(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 1)
	f := all[0].Filter
	assert.Equal(t, []any{true, "the-key", "ada", "order=17", "all,eu", "eu,nobody", "the-flow",
		"503", sought.Fingerprint, 2, sought.Error},
		[]any{f.AllTypes, f.Key, f.User, f.Metadata, f.Tags, f.AnyTags, f.FlowKey, f.Code,
			f.Fingerprint, f.Attempts, f.Error})
	p.quiet()
}
