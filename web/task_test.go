package web_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// The page of a failed task begins with what failed, and leads to the tasks with the same error and
// to the endpoint. A stack trace has a line for each of its lines; each button that copies has a
// name.
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
	p.See("tasks match") // others may have failed so, too
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
	p.See("It runs since ")
	p.See(", at " + e.URL + ", by the node testnode.")
	p.Run(`return !!document.querySelector('.timeline rect.running')`)
	p.Run(`return !!document.querySelector('main p a[href="/console/endpoints/` + e.ID + `"]')`)
	p.resize(390, 800)
	p.fits(390)
	assert.Empty(t, p.axe())
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
