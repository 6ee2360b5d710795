package web_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// later submits a task that waits for an hour.
func (p *page) later(task client.NewTask) string {
	p.t.Helper()
	task.Context = client.JSON(`1`)
	task.Delay = client.NewDuration(time.Hour)
	made, err := p.api.Submit(p.t.Context(), task)
	require.NoError(p.t, err)
	return made.ID
}

// Ticked tasks are changed, and no others: run now, also of several types. A change of the filter
// unticks them.
func TestTickedTasks(t *testing.T) {
	p := openPageOf(t, "ticks")
	p.makeType("ticked")
	p.makeType("ticked-too")
	first := p.later(client.NewTask{Type: "ticked"})
	second := p.later(client.NewTask{Type: "ticked-too"})
	third := p.later(client.NewTask{Type: "ticked"})
	p.open("/console/tasks")
	for _, id := range []string{first, second} {
		p.Run(`const box = document.querySelector("[aria-label='Tick ` + id + `']");
			box?.click(); return box?.checked`)
	}
	p.See("2 tasks ticked")
	p.Gone("Run all that match now")
	p.Click("Run the ticked now")
	p.See("2 tasks, waiting or pending: that are ticked")
	p.Click("Run the ticked now")
	p.See("2 of 2")
	for _, id := range []string{first, second} {
		task, err := p.api.Wait(t.Context(), id, patience)
		require.NoError(t, err)
		assert.Equal(t, client.StatusSucceeded, task.Status)
	}
	task, err := p.api.Get(t.Context(), third)
	require.NoError(t, err)
	assert.Equal(t, client.StatusWaiting, task.Status)

	p.open("/console/tasks?type=ticked")
	p.Fill("Tick all of this page", "")
	p.See("2 tasks ticked")
	p.Fill("Status", "waiting")
	p.Gone("ticked Untick all")
	p.quiet()
}

// The delay of one task ends by a button of its page.
func TestRunOneNow(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("hurried-one")
	id := p.later(client.NewTask{Type: "hurried-one"})
	p.open("/console/tasks/" + id)
	p.Click("Run now")
	p.See("The task is due now")
	task, err := p.api.Wait(t.Context(), id, patience)
	require.NoError(t, err)
	assert.Equal(t, client.StatusSucceeded, task.Status)
	p.See("succeeded")
	p.Gone("Run now")
	p.quiet()
}

// All that match run now, and the question says the whole filter.
func TestRunAllThatMatchNow(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("hurried")
	id := p.later(client.NewTask{Type: "hurried", User: "hurried-ada"})
	other := p.later(client.NewTask{Type: "hurried"})
	p.open("/console/tasks?type=hurried&status=waiting&user=hurried-ada")
	p.Click("Run all that match now")
	p.See("1 task, waiting: of the type hurried, of the user “hurried-ada”, " +
		"without children of fan-outs.")
	p.Click("Run all that match now")
	p.See("1 of 1")
	task, err := p.api.Wait(t.Context(), id, patience)
	require.NoError(t, err)
	assert.Equal(t, client.StatusSucceeded, task.Status)
	task, err = p.api.Get(t.Context(), other)
	require.NoError(t, err)
	assert.Equal(t, client.StatusWaiting, task.Status)
	p.quiet()
}

// A change of a choice takes along the text that stands in a field.
func TestChoiceAppliesTypedText(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("typed-too")
	p.submit("typed-too", `{"fail":true}`, client.StatusFailed)
	declined := p.submit("typed-too", `{"declined":true}`, client.StatusFailed)
	p.open("/console/tasks?type=typed-too")
	p.Click("More filters")
	p.Fill("Text in the error", "declined")
	p.Fill("Status", "failed")
	p.See(declined)
	p.See("1 task matches")
	p.Run(`return location.search.includes("error=declined")`)
	p.quiet()
}

// caught keeps what the page would download.
const caught = `window.files = [];
	const make = URL.createObjectURL;
	URL.createObjectURL = (file) => {
		file.text().then((text) => window.files.push(text));
		return make(file);
	};
	return true`

// All that match is exported, over several pages. No cell runs as a formula.
func TestExport(t *testing.T) {
	p := openPage(t, auth.ScopeRead)
	p.delayedTasks("exported", 501)
	p.later(client.NewTask{Type: "exported", Key: `=HYPERLINK("http://x"),1`, User: "exported-ada"})
	p.open("/console/tasks?type=exported")
	p.See("502 tasks match")
	p.Run(caught)
	p.Click("Export as JSON lines")
	p.See("502 tasks exported")
	p.Run(`return window.files[0]?.trim().split("\n").map(JSON.parse).length === 502`)
	p.open("/console/tasks?type=exported&user=exported-ada")
	p.See("1 task matches")
	p.Run(caught)
	p.Click("Export as CSV")
	p.See("1 task exported")
	p.Run(`return window.files[0]?.split("\r\n").length === 3`)
	file := browsertest.Ask[string](t, p.ctx, `window.files[0]`)
	assert.True(t, strings.HasPrefix(file, "id,type,status,stage,"), file)
	assert.Contains(t, file, `,"'=HYPERLINK(""http://x""),1",`)
	p.quiet()
}

// The browser keeps columns and views.
func TestColumnsAndViews(t *testing.T) {
	p := openPageOf(t, "viewer")
	p.makeType("viewed")
	p.later(client.NewTask{Type: "viewed", Key: "viewed-key", Tags: []string{"viewed-tag"}})
	p.open("/console/tasks?type=viewed&status=waiting")
	p.See("1 task matches")
	assert.NotContains(t, p.Text(), "viewed-tag")
	open := func(menu string) {
		p.Run(`const e = [...document.querySelectorAll("summary")]
			.find(e => words(e) === "` + menu + `"); if (e) e.parentElement.open = true; return !!e`)
	}
	open("Columns")
	p.Run(`const e = [...document.querySelectorAll(".menu label")].find(e => words(e) === "Tags");
		e?.click(); return !!e`)
	p.See("viewed-tag")
	open("Views")
	p.Fill("Name of this filter", "Waiting ones")
	p.Click("Save view")
	p.See("Waiting ones")
	assert.Empty(t, p.axe())
	p.open("/console/tasks")
	p.See("viewed-tag")
	open("Views")
	p.Click("Waiting ones")
	p.Run(`return location.search === "?type=viewed&status=waiting"`)
	open("Views")
	p.Run(`const e = document.querySelector("[aria-label='Forget the view Waiting ones']");
		e?.click(); return !!e`)
	p.See("None is saved in this browser.")
	p.quiet()
}

// In a narrow window the tasks are cards, the filters are folded, and no long value widens it.
func TestNarrowList(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("narrow")
	key := strings.Repeat("k", 217)
	p.later(client.NewTask{Type: "narrow", Key: key, Tags: []string{strings.Repeat("t", 40)}})
	p.resize(390, 844)
	p.open("/console/tasks?type=narrow&key=" + key)
	p.See("1 task matches")
	p.See("Filters (2)")
	p.Run(`return !called("button", "Search")`)
	p.fits(390)
	assert.Equal(t, "block", browsertest.Ask[string](t, p.ctx,
		`getComputedStyle(document.querySelector("table.cards tr[class], table.cards tbody tr")).display`))
	assert.Empty(t, p.axe())
	p.quiet()
}

// Older and newer tasks, page by page, and the oldest at once. A choice begins at the newest again.
func TestOlderAndNewer(t *testing.T) {
	p := openPage(t, auth.ScopeRead)
	p.delayedTasks("paged", 130)
	page, err := p.api.List(t.Context(), client.ListParams{Type: "paged", Reverse: true, Limit: 1})
	require.NoError(t, err)
	oldest := page.Data[0].ID
	p.open("/console/tasks?type=paged")
	rows := `document.querySelectorAll("[data-row]").length === `
	p.See("130 tasks match")
	p.Click("Older")
	p.See("Newest")
	p.Click("Older")
	p.Run(`return ` + rows + `30`)
	p.Click("Newer")
	p.Run(`return ` + rows + `50`)
	p.Click("Newest")
	p.Gone("Newest")

	const last = `[...document.querySelectorAll("[data-row]")].at(-1).innerText`
	p.Click("Oldest")
	p.Gone("Oldest")
	p.Run(`return ` + rows + `50 && ` + last + ` === "` + oldest + `"`)
	p.Click("Newer")
	p.Run(`return ` + rows + `50 && ` + last + ` !== "` + oldest + `"`)
	p.Click("Newer")
	p.Run(`return ` + rows + `30`)
	p.Click("Older")
	p.Run(`return ` + rows + `50`)
	p.Click("Oldest")
	p.Run(`return ` + last + ` === "` + oldest + `"`)
	p.Fill("Status", "waiting")
	p.Run(`return location.search === "?type=paged&status=waiting"`)
	p.Gone("Newest")
	p.quiet()
}
