package web_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

const phone = 390 // the width of the screen, in px

// On a phone no page is wider than the screen, whatever its texts are, and filters are folded at
// first. TestPages has more pages, with short texts.
func TestPhone(t *testing.T) {
	p := openPageOf(t, "phones")
	pages := p.longValues()
	p.resize(phone, 844)
	for _, one := range pages {
		p.open(one.path)
		p.See(one.text)
		p.fitsAPhone(one.name, phone, shapeRules)
		assert.Zero(t, browsertest.Ask[int](t, p.ctx, `[...document.querySelectorAll(".filters")]
			.filter(e => e.checkVisibility()).length`), "%s: filters that are not folded", one.name)
	}
	p.quiet()
}

// longValues makes things with long texts, and returns the pages that show them.
func (p *page) longValues() []shown {
	p.t.Helper()
	ctx := p.t.Context()
	worst := p.makeTypeAt("long-values", "/"+strings.Repeat("x", 580))
	key := strings.Repeat("k", 217)
	task, err := p.api.SubmitAndWait(ctx, client.NewTask{Type: "long-values", Key: key,
		FlowKey: strings.Repeat("f", 255), User: strings.Repeat("u", 255),
		Tags:     []string{strings.Repeat("t", 64)},
		Metadata: map[string]string{strings.Repeat("m", 40): strings.Repeat("v", 200)},
		Context:  client.JSON(`{"fail":true,"long":"` + strings.Repeat("c", 600) + `"}`)}, patience)
	require.NoError(p.t, err)
	require.Equal(p.t, client.StatusFailed, task.Status)
	_, err = p.api.RedriveAll(ctx,
		client.BulkRedrive{Type: "long-values", FlowKey: strings.Repeat("g", 255)})
	require.NoError(p.t, err)
	_, err = p.api.PauseTaskType(ctx, "long-values", strings.Repeat("r", 600))
	require.NoError(p.t, err)
	waits, err := p.api.Submit(ctx, client.NewTask{Type: "long-values", Context: client.JSON(`1`),
		Key: strings.Repeat("w", 217)})
	require.NoError(p.t, err)
	endpoints, err := p.api.Endpoints(ctx, "long-values")
	require.NoError(p.t, err)
	return []shown{
		{"long overview", "/console", "long-values"},
		{"long tasks", "/console/tasks?type=long-values&key=" + key, task.ID},
		{"long failed task", "/console/tasks/" + task.ID, key},
		{"long waiting task", "/console/tasks/" + waits.ID, waits.ID},
		{"long failures", "/console/failures", task.ID},
		{"long types", "/console/types", "rrrr"},
		{"long type", "/console/types/long-values", worst},
		{"long endpoints", "/console/endpoints?type=long-values", worst},
		{"long endpoint", "/console/endpoints/" + endpoints[0].ID, worst},
		{"long operations", "/console/operations", "long-values"},
		{"long audit", "/console/audit", "long-values"},
	}
}

// fitsAPhone checks an open page on a screen of a phone's width: the page is no wider, its header
// is low, what is listed is cards, and it breaks none of the rules.
func (p *page) fitsAPhone(name string, width int64, rules string) {
	p.t.Helper()
	p.fits(width)
	assert.LessOrEqual(p.t, browsertest.Ask[float64](p.t, p.ctx,
		`document.querySelector("header")?.offsetHeight ?? 0`), 56.0,
		"%s: the height of its header", name)
	assert.Zero(p.t, browsertest.Ask[int](p.t, p.ctx,
		`document.querySelectorAll("table.rows:not(.cards)").length`), "%s: lists", name)
	for _, fault := range p.axeOf(rules) {
		p.t.Errorf("%s on a phone: %s", name, fault)
	}
}

// On a phone the menu is opened by a button. It closes when a page was chosen, and by Escape.
func TestMenuOnAPhone(t *testing.T) {
	p := openPage(t, all...)
	p.resize(phone, 844)
	p.open("/console")
	menu := func(open bool) {
		t.Helper()
		p.Run(`return document.querySelector("header nav").checkVisibility() === ` +
			strconv.FormatBool(open))
	}
	menu(false)
	p.Click("☰ Menu")
	menu(true)
	p.accessible("the menu")
	p.Click("Schedules")
	p.See("New schedule")
	menu(false)
	p.Click("☰ Menu")
	p.Run(`const link = document.querySelector("header nav a"); link.focus(); link.dispatchEvent(
		new KeyboardEvent("keydown", {key: "Escape", bubbles: true})); return true`)
	menu(false)
	p.Run(`return document.activeElement === document.querySelector(".opener")`)
	p.quiet()
}

// The forms fit a phone, too.
func TestFormsOnAPhone(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("by-phone")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "by-phone",
		Context: client.JSON(`"` + strings.Repeat("c", 600) + `"`),
		Delay:   client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.resize(phone, 844)
	for path, button := range map[string]string{"/console/types/by-phone": "Submit a task",
		"/console/tasks?type=by-phone": "Submit a task", "/console/tasks/" + task.ID: "Edit"} {
		p.open(path)
		p.Click(button)
		p.Run(`return field("Context")?.value.length > 600`)
		p.Click("More")
		p.Run(`const dialog = where.matches("dialog") && where.getBoundingClientRect();
			return dialog && dialog.left >= 0 && dialog.right <= 390 &&
				where.scrollWidth <= where.clientWidth`)
		p.accessible(path + ", " + button)
	}
	p.quiet()
}
