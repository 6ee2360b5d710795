package web_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// holdChanges is a script that lists the calls of a page that may change something, and holds them
// until letGo is called.
const holdChanges = `window.sent = [];
	const through = window.fetch;
	let held = Promise.resolve();
	window.hold = () => { sent.length = 0; held = new Promise(go => (window.letGo = go)) };
	window.fetch = async (...all) => {
		const {method, url} = new Request(...all);
		if (method === "GET") return through(...all);
		sent.push(method + " " + new URL(url).pathname);
		await held;
		return through(...all);
	};`

// twice clicks a button two times at once, and then once more. It expects one call, and that the
// button is disabled until there is an answer.
func (p *page) twice(button, call, says string) {
	p.t.Helper()
	name := browsertest.Quote(button)
	p.Run(`const e = called("button", ` + name + `); if (!e) return false;
		hold(); e.click(); e.click(); return true`)
	p.Run(`return sent.length > 0 && [...where.querySelectorAll("button")].some(e =>
		words(e) === ` + name + ` && e.disabled && (e.click(), true))`)
	p.Run(`letGo(); return true`)
	p.See(says)
	assert.Equal(p.t, []string{call}, browsertest.Ask[[]string](p.t, p.ctx, `sent`), button)
}

// A double click sends what makes or changes something once.
func TestDoubleClicks(t *testing.T) {
	p := openPageOf(t, "doubles")
	p.Before(holdChanges)
	p.open("/console")
	p.twice("Create thumbnails", "PUT /v1/task-types/thumbnails", "thumbnails is created")

	p.open("/console/types")
	p.Click("New type")
	p.Fill("Name", "doubled")
	p.twice("Show changes", "PUT /v1/task-types/doubled", `+ added: "name": "second"`)
	p.twice("Create", "PUT /v1/task-types/doubled", "Version 1 of doubled is saved")

	p.open("/console/endpoints?type=doubled&stage=first")
	p.Click("New endpoint")
	p.offers("Stage", "first")
	p.Fill("URL", p.makeTypeAt("worked", "/doubled"))
	p.twice("New endpoint", "POST /v1/endpoints", "Close")

	p.open("/console/schedules")
	p.Click("New schedule")
	p.offers("Type of its tasks", "worked")
	p.Fill("Name", "doubled")
	p.Fill("Type of its tasks", "worked")
	p.Fill("Every", "1h")
	p.twice("New schedule", "PUT /v1/schedules/doubled", "doubled is saved")
	p.twice("Pause", "POST /v1/schedules/doubled/pause", "doubled is paused")
	p.Click("Trigger now")
	p.twice("Trigger now", "POST /v1/schedules/doubled/trigger", "is submitted")

	operator, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.enter(operator)
	p.open("/console/tenants")
	p.Click("New tenant")
	name := again("doubled")
	p.Fill("Name", name)
	p.twice("New tenant", "POST /v1/tenants", name+" is created")
	p.quiet()
}

// A double click submits one task, and does to a task, or to all that match, once what was asked.
func TestDoubleClicksOfTasks(t *testing.T) {
	p := openPageOf(t, "doubletasks")
	p.makeType("twins")
	failed := p.submit("twins", `{"fail":1}`, client.StatusFailed)
	waits, err := p.api.Submit(t.Context(), client.NewTask{Type: "twins", Context: client.JSON(`1`),
		Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.Before(holdChanges)

	p.open("/console/types/twins")
	p.Click("Submit a task")
	p.Run(`return field("Context").value !== "{}"`)
	p.twice("Submit a task", "POST /v1/tasks", "The task is submitted")

	p.open("/console/tasks/" + waits.ID)
	p.Click("Edit")
	p.Fill("Head start", "60")
	p.twice("Edit", "PATCH /v1/tasks/"+waits.ID, "The task is changed")
	p.Run(`return !where.matches("dialog")`)
	p.Click("Cancel")
	p.twice("Cancel", "POST /v1/tasks/"+waits.ID+"/cancel", "The task is cancelled")

	p.open("/console/tasks/" + failed)
	p.Click("Redrive")
	p.twice("Redrive", "POST /v1/tasks/"+failed+"/redrive", "The task is redriven")
	p.open("/console/tasks/" + failed)
	p.Click("Run again")
	p.twice("Run again", "POST /v1/tasks/"+failed+"/rerun", "runs it again")

	for button, call := range map[string]string{"Redrive all that match": "redrive",
		"Cancel all that match": "cancel", "Delay all that match": "delay",
		"Change priority of all that match": "priority", "Erase contents of all that match": "erase",
	} {
		p.open("/console/tasks?type=twins")
		p.Click(button)
		p.Run(`return where.matches("dialog") && !words(where).includes("Counting")`)
		p.twice(button, "POST /v1/tasks/"+call, button+": started")
	}
	p.quiet()
}
