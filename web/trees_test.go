package web_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// requests is a script that counts the calls about tasks since the page was loaded.
const requests = `performance.getEntriesByType("resource")
	.filter(e => /\/v1\/tasks\b/.test(e.name) && !/attempts|count/.test(e.name)).length`

// fold is a script that finds the button of a branch of a tree.
func fold(name string) string {
	return `const e = document.querySelector("[aria-label=" + ` +
		browsertest.Quote(browsertest.Quote(name)) + ` + "]"); `
}

// toggle opens a branch of a tree, or closes it.
func (p *page) toggle(name string) {
	p.t.Helper()
	p.Run(fold(name) + `e?.click(); return !!e`)
}

// A task's children and what it depends on are a tree. Each branch is asked for when it is opened,
// and not again once it is closed.
func TestTree(t *testing.T) {
	p := openPage(t, auth.ScopeRead)
	ctx := t.Context()
	put := func(name string, stage client.Stage) {
		stage.Name = "only"
		_, err := p.api.PutTaskType(ctx, name, client.TaskTypeSpec{Stages: []client.Stage{stage}})
		require.NoError(t, err)
	}
	submit := func(name string, on ...string) string {
		n := client.NewTask{Type: name, Context: client.JSON(`1`)}
		for _, id := range on {
			dependency, err := client.OnTask(id)
			require.NoError(t, err)
			n.DependsOn = append(n.DependsOn, dependency)
		}
		task, err := p.api.Submit(ctx, n)
		require.NoError(t, err)
		return task.ID
	}
	put("leaf", client.Stage{})
	put("wide", client.Stage{FanOut: &asyncflow.FanOut{Shards: 25}})
	put("middle", client.Stage{})
	put("top", client.Stage{})
	leaf := submit("leaf")
	wide := submit("wide")
	middle := submit("middle", leaf, wide)
	top := submit("top", middle)

	p.open("/console/tasks/" + top)
	p.See("Depends on")
	p.See(middle)
	assert.NotContains(t, p.Text(), leaf)
	p.Run(fold("Below "+middle) + `e?.focus(); return document.activeElement === e`)
	require.NoError(t, chromedp.Do(p.ctx, chromedp.KeyEvent("\r")))
	p.See(leaf)
	p.See("waits for the tasks that it depends on")
	p.toggle("Below " + leaf)
	p.See("It has no children, and depends on nothing.")
	p.toggle("Below " + wide)
	p.See("The latest 20 of 25 children")
	before := browsertest.Ask[int](t, p.ctx, requests)
	p.toggle("Children of " + wide)
	p.See("All children")
	assert.Greater(t, browsertest.Ask[int](t, p.ctx, requests), before)
	assert.Empty(t, p.axe())

	// Closed, it asks no more: only the page's own task is read again.
	p.toggle("Below " + middle)
	p.Gone(leaf)
	own := `performance.getEntriesByType("resource")
		.filter(e => e.name.endsWith("/v1/tasks/` + top + `")).length`
	for rest := 10; ; rest-- { // what it asked before it was closed may be answered later
		ownBefore := browsertest.Ask[int](t, p.ctx, own)
		allBefore := browsertest.Ask[int](t, p.ctx, requests)
		p.Run(fmt.Sprintf(`return %s >= %d`, own, ownBefore+4))
		others := browsertest.Ask[int](t, p.ctx, requests) - allBefore -
			(browsertest.Ask[int](t, p.ctx, own) - ownBefore)
		if others == 0 {
			break
		}
		require.Positive(t, rest, "it still asks for %d others", others)
	}

	p.toggle("Below " + middle)
	p.toggle("Below " + wide)
	p.toggle("Children of " + wide)
	p.Click("All children")
	p.See("25 tasks match")
	p.Run(`const e = document.querySelector("[data-row]"); e?.click(); return !!e`)
	p.See("child 25 of 25")
	p.Click(wide)
	p.See("25 in all: 25 waiting")

	// A list leaves out children, unless it is told to show them.
	p.open("/console/tasks?type=wide")
	p.See("1 task matches")
	p.Run(`const e = document.querySelector(".filters input[type=checkbox]"); e?.click(); return !!e`)
	p.See("26 tasks match")
	p.quiet()
}
