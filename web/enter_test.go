package web_test

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// countCalls is a script that counts the calls of a page by method and path.
const countCalls = `window.calls = [];
	const through = window.fetch;
	window.fetch = (...all) => {
		const {method, url} = new Request(...all);
		const {pathname, search} = new URL(url);
		calls.push(method + " " + pathname + search);
		return through(...all);
	};`

// typeTime types a time into a field and leaves the focus there.
func (p *page) typeTime(label, value string) {
	p.t.Helper()
	p.Run(`const e = field(` + browsertest.Quote(label) + `); if (!e) return false;
		e.focus();
		Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), "value").set.call(e, ` +
		browsertest.Quote(value) + `);
		e.dispatchEvent(new Event("input", {bubbles: true})); return true`)
}

// enterKey presses Enter as a keyboard does: a page may prevent what follows when the key is down.
func (p *page) enterKey() {
	p.t.Helper()
	for _, e := range []input.DispatchKeyEventParams{
		{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", Code: "Enter", Text: "\r",
			WindowsVirtualKeyCode: 13},
		{Type: input.DispatchKeyEventTypeKeyUp, Key: "Enter", Code: "Enter",
			WindowsVirtualKeyCode: 13},
	} {
		_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, e)
		require.NoError(p.t, err)
	}
}

// Enter in a time field of a filter applies it once, and with it what stands in the other fields. A
// list that loads again leaves alone what is typed.
func TestEnterInATimeOfAFilter(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("entered")
	p.submit("entered", `1`, client.StatusSucceeded)
	p.Before(countCalls)
	for _, one := range []struct{ path, shows, field, time, key, list, wanted string }{
		{"/console/audit", "task_type.put", "Action", "From", "action", "/v1/audit",
			"task_type.put"},
		{"/console/tasks?type=entered", "entered.", "Find by id", "Submitted from", "key",
			"/v1/tasks", "no such key"},
	} {
		p.open(one.path)
		p.See(one.shows)
		p.Fill(one.field, one.wanted)
		if one.key == "key" {
			p.Click("More filters")
		}
		p.typeTime(one.time, "2026-01-02T03:04")
		if one.key == "key" {
			id := p.submit("entered", `2`, client.StatusSucceeded)
			p.See(id)
		}
		before := browsertest.Ask[int](t, p.ctx, `history.length`)
		p.Run(`calls.length = 0; return true`)
		p.enterKey()
		p.Run(`const q = new URLSearchParams(location.search);
			return new Date(q.get("since")).getTime() === new Date("2026-01-02T03:04").getTime() &&
				(q.get(` + browsertest.Quote(one.key) + `) ?? q.get("text")) === ` +
			browsertest.Quote(one.wanted))
		p.Run(`return calls.some(c => c.includes(` + browsertest.Quote(one.list) + `) &&
			c.includes("since="))`)
		assert.Equal(t, before+1, browsertest.Ask[int](t, p.ctx, `history.length`), one.path)
		once := `c.includes("` + one.list + `")`
		if one.key == "key" { // the list is live; what the text means is asked for once
			once = `/[?&]key=no/.test(c)`
		}
		assert.Equal(t, 1, browsertest.Ask[int](t, p.ctx, `calls.filter(c => `+once+`).length`),
			one.path)
		p.enterKey() // the same again
		p.Run(`return field(` + browsertest.Quote(one.time) + `).value === "2026-01-02T03:04"`)
		assert.Equal(t, before+1, browsertest.Ask[int](t, p.ctx, `history.length`), one.path)
	}
	p.quiet()
}

// Enter in a time field of a form sends the form once, with this time.
func TestEnterInATimeOfAForm(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("entered-form")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "entered-form",
		Context: client.JSON(`1`), Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.Before(countCalls)
	sent := func(call string) {
		t.Helper()
		assert.Equal(t, []string{call}, browsertest.Ask[[]string](t, p.ctx,
			`calls.filter(c => !c.startsWith("GET"))`))
	}
	later := time.Now().Add(48 * time.Hour).Truncate(time.Minute)
	text := later.Local().Format("2006-01-02T15:04")
	p.open("/console/tasks/" + task.ID)
	p.Click("Edit")
	p.typeTime("Or no sooner than at", text)
	p.enterKey()
	p.See("The task is changed")
	sent("PATCH /v1/tasks/" + task.ID)
	got, err := p.api.Get(t.Context(), task.ID)
	require.NoError(t, err)
	assert.WithinDuration(t, later, got.OrderTime, 0)

	p.open("/console/schedules")
	p.Click("New schedule")
	p.offers("Type of its tasks", "entered-form")
	p.Fill("Name", "entered")
	p.Fill("Type of its tasks", "entered-form")
	p.Fill("Every", "1h")
	p.typeTime("No run before", text)
	p.enterKey()
	p.See("entered is saved")
	sent("PUT /v1/schedules/entered")
	s, err := p.api.Schedule(t.Context(), "entered")
	require.NoError(t, err)
	assert.WithinDuration(t, later, s.StartsAt, 0)
	p.quiet()
}
