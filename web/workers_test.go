package web_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
)

// The menu leads to the workers, whatever the width of the screen: in one line, or on a phone by
// its button.
func TestWorkersAreInTheMenu(t *testing.T) {
	p := openPage(t, auth.ScopeRead)
	for _, width := range []int64{phone, 1024, 1440} {
		p.resize(width, 844)
		p.open("/console")
		if width == phone {
			p.Click("☰ Menu")
		}
		p.Run(`return called("header nav a", "Workers")?.checkVisibility()`)
		p.Click("Workers")
		p.Run(`return location.pathname === "/console/workers" &&
			words(document.querySelector("h1")) === "Workers" &&
			called("header nav a", "Workers").getAttribute("aria-current") === "page" &&
			document.querySelector("header").offsetHeight <= 56`)
		p.fits(width)
	}
	p.quiet()
}

// Workers are listed with what they do; a row leads to the tasks of its worker. On a phone they are
// cards, and nothing is wider than the page.
func TestWorkers(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("letters")
	p.open("/console/workers?type=letters")
	p.See("No attempt ended in the last 15 minutes")
	assert.Empty(t, p.axe())
	for range 5 {
		p.submit("letters", `{"fail":1}`, client.StatusFailed)
	}
	report, err := p.api.Workers(t.Context(), client.WorkerParams{Type: "letters"})
	require.NoError(t, err)
	require.Len(t, report.Workers, 2)
	name := report.Workers[0].Name
	require.NotEmpty(t, name, "the package gives the name of the host")
	p.open("/console/types/letters")
	p.Click("Which workers are slow or gone")
	p.See("10 attempts were read.")
	p.Run(`return [...document.querySelectorAll("tbody tr")].map((r) =>
		[...r.cells].slice(0, 3).map((c) => words(c)).join()).join(" ") ===
		"` + name + `,failing,letters / second ` + name + `,well,letters / first"`)
	assert.Empty(t, p.axe())
	p.resize(390, 800)
	p.fits(390)
	p.resize(1280, 800)
	p.Click("Show all types")
	p.Click("Last hour")
	p.Run(`return location.search === "?last=1h"`)
	p.See("attempts were read.")
	p.open("/console/workers?type=letters")
	p.Click(name)
	p.See("5 tasks match")
	p.Run(`return new URLSearchParams(location.search).get("worker") === "` + name + `"`)
	p.Run(`document.querySelector("[name=worker]").focus(); return true`)
	p.Run(`return [...document.querySelectorAll("#known-worker option")].map((o) => o.value).join() ===
		"` + name + `"`) // names to choose from
	assert.Empty(t, p.axe())
	p.quiet()
}
