package web_test

import (
	"context"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/worker"
)

// The page of a failed task begins with what failed, and leads to the tasks with the same error and
// to the endpoint. A stack trace is shown line by line; each button that copies bears a name.
func TestFailedTaskInShort(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("short")
	other := p.submit("short", `{"card":"declined","n":2}`, client.StatusFailed)
	id := p.submit("short", `{"card":"declined","stack":"Error: no\n\tat pay (pay.js:7)\\n"}`,
		client.StatusFailed)
	p.open("/console/tasks/" + id)
	p.See("Failed in second, attempt 1 of 1, ")
	p.See("the card was declined")
	p.Run(`const first = e => words(document.body).indexOf(e);
		return first("Failed in second") < first("Redrive") &&
			first("Redrive") < first("was due") && first("was due") < first("Submitted")`)
	p.Run(`return [...document.querySelectorAll(".string")].some(e =>
		e.textContent === '"Error: no\n\tat pay (pay.js:7)\\\\n"' && e.getClientRects().length >= 2)`)
	for _, name := range []string{"Copy id", "Copy the error", "Copy Context"} {
		p.Run(`return [...document.querySelectorAll("button")].some(b =>
			(b.ariaLabel ?? words(b)) === "` + name + `")`)
	}
	p.Run(`return /^When each attempt ran, over /.test(
		document.querySelector(".timeline svg")?.getAttribute("aria-label"))`)
	p.Run(`return /^submitted .* done failed was due .* in all$/.test(
		words(document.querySelector(".timeline figcaption")))`)
	assert.Empty(t, p.axe())
	endpoints, err := p.api.Endpoints(t.Context(), "short")
	require.NoError(t, err)
	for _, e := range endpoints {
		p.Run(`return !!document.querySelector('.attempts a[href="/console/endpoints/` + e.ID +
			`"]')`)
	}
	p.Click("Other tasks with this error")
	p.See("tasks match") // perhaps others failed so, too
	p.See(other)
	p.Run(`return /fingerprint=[0-9a-f]{16}/.test(location.search)`)
	p.quiet()
}

// The page of a running task begins with where it runs now.
func TestRunningTaskInShort(t *testing.T) {
	p := openPage(t, all...)
	open := make(chan struct{})
	defer close(open) // before the server is closed, which waits for the request
	e := p.answering("held-up", func() int {
		<-open
		return http.StatusOK
	})
	task, err := p.api.Submit(t.Context(),
		client.NewTask{Type: "held-up", Context: client.JSON(`1`)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.See("It has run for ")
	p.See(", at " + e.URL + ", by the node testnode.")
	p.Run(`return !!document.querySelector('.timeline rect.running')`)
	p.Run(`return !!document.querySelector('main p a[href="/console/endpoints/` + e.ID + `"]')`)
	p.resize(390, 800)
	p.fits(390)
	assert.Empty(t, p.axe())
	p.quiet()
}

// The page of a task that is with a named worker says so, and leads to all tasks that this worker
// runs or ran. The labels are there, and the trace is a link.
func TestWorkerAndTraceOfATask(t *testing.T) {
	p := openPage(t, all...)
	p.use(p.node.Token) // which may claim
	_, err := p.api.PutTaskType(t.Context(), "placed", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only", Mode: "claim"}}})
	require.NoError(t, err)
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "placed",
		Context: client.JSON(`1`), User: "placed-ada", Tags: []string{"placed-tag"},
		Metadata: map[string]string{"order": "placed-4711"},
		Trace:    "00-" + id + "-00f067aa0ba902b7-01"})
	require.NoError(t, err)
	w, err := worker.New(worker.Config{Name: "placed-worker",
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	end := make(chan struct{})
	worker.Handle(w, "placed", "only", func(context.Context, worker.Task[int]) (int, error) {
		<-end
		return 1, nil
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Claim(ctx, worker.Claims{Client: p.api}, "placed", "only") }()
	p.open("/console/tasks/" + task.ID)
	p.See("at the worker placed-worker, claimed by")
	for _, text := range []string{"placed-ada", "placed-tag", "placed-4711"} {
		p.See(text)
	}
	p.Run(`return !!document.querySelector(
		'main a[href="https://tempo.example.com/trace/` + id + `"]')`)
	close(end)
	p.See("succeeded")
	stop()
	require.NoError(t, <-ended)
	p.open("/console/tasks?worker=placed-worker")
	p.See(task.ID)
	p.See("1 task matches")
	p.quiet()
}

// The page of a task with rules says who may claim it, and why it waits.
func TestClaimRulesOfATask(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "judged", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only", Mode: "claim"}}})
	require.NoError(t, err)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "judged", Context: client.JSON(`1`),
		Claim: &asyncflow.ClaimRules{Exclude: []string{"anna", "<b>desk</b>-*"},
			Labels: map[string]string{"lang": "de"}}})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.See("It waits for a worker that asks for it: only claimers with the labels lang=de may " +
		"have it; 2 claimers are excluded.")
	p.See("Not for the claimers")
	p.See("anna, <b>desk</b>-*")
	p.See("Only for claimers with")
	p.Run(`return words(document.querySelector(".facts")).includes("lang=de")`)
	assert.Empty(t, p.axe())
	_, err = p.api.Change(t.Context(), task.ID, client.TaskPatch{Claim: &asyncflow.ClaimRules{}})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.See("It waits for a worker that asks for it.")
	p.Run(`return !words(document.querySelector(".facts")).includes("claimers")`)
	p.quiet()
}

// The page of a type, and the overview, show how long its tasks waited when they were due, and how
// long they took: from the figures that its node writes every 10 s.
func TestTimesOfAType(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("timed")
	p.submit("timed", `1`, client.StatusSucceeded)
	p.open("/console/types/timed")
	fact := func(name string) {
		p.Run(`const e = [...document.querySelectorAll(".facts dt")].find(e => words(e) === "` +
			name + `"); return /^[\d.]+( m?s)? \/ [\d.]+ m?s$/.test(words(e?.nextElementSibling))`)
	}
	for _, name := range []string{"Tasks waited when due", "Waited in first", "Waited in second",
		"From submit to end"} {
		fact(name)
	}
	p.open("/console")
	p.Run(`const row = [...document.querySelectorAll("tr")].find(e => words(e).startsWith("timed"));
		return (words(row).match(/[\d.]+( m?s)? \/ [\d.]+ m?s/g) ?? []).length >= 3`)
	p.quiet()
}
