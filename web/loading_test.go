package web_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// What loads for longer than a moment gets a place on the page; what loads fast doesn't flicker.
func TestSkeleton(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("slow-page")
	id := p.submit("slow-page", `1`, client.StatusSucceeded)
	p.Before(`const through = window.fetch;
		const held = new Promise(go => (window.letGo = go));
		window.fetch = async (...all) => {
			if ((all[0].url ?? String(all[0])).includes("/v1/tasks/")) await held;
			return through(...all);
		}`)
	p.open("/console/tasks/" + id)
	p.Run(`const e = document.querySelector(".skeleton");
		return e && getComputedStyle(e).visibility === "visible" &&
			getComputedStyle(e).animationDelay === "0.2s"`)
	assert.Empty(t, p.axe())
	p.Run(`window.letGo(); return true`)
	p.See("slow-page")
	p.Run(`return !document.querySelector(".skeleton")`)
	p.quiet()
}

// Each page shows grey bars while it loads. They break no rule of axe, light or dark, and fit a
// phone.
func TestSkeletons(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("skeletal")
	endpoints, err := p.api.Endpoints(t.Context(), "skeletal")
	require.NoError(t, err)
	_, err = p.api.PutSchedule(t.Context(), "skeletal", client.ScheduleSpec{Type: "skeletal",
		Cron: "0 3 * * *", Context: client.JSON(`1`)})
	require.NoError(t, err)
	p.Before(`const through = window.fetch;
		const held = new Promise(go => (window.letGo = go));
		window.fetch = async (...all) => {
			if ((all[0].url ?? String(all[0])).includes("/v1/")) await held;
			return through(...all);
		}`)
	p.resize(phone, 844)
	for _, path := range []string{"tasks", "types", "types/skeletal", "endpoints",
		"endpoints/" + endpoints[0].ID, "schedules", "schedules/skeletal", "audit"} {
		p.hasSkeleton("/console/" + path)
	}
	operator, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.enter(operator)
	for _, path := range []string{"", "/tenants", "/tenants/acme", "/governance", "/audit"} {
		p.hasSkeleton("/console" + path)
	}
	p.quiet()
}

// hasSkeleton opens a page with calls that are held, looks at it, and lets them go.
func (p *page) hasSkeleton(path string) {
	p.t.Helper()
	p.open(path)
	p.Run(`const e = document.querySelector("main .skeleton");
		return e && getComputedStyle(e).visibility === "visible" &&
			getComputedStyle(e).animationDelay === "0.2s"`)
	p.fits(phone)
	for scheme, rules := range map[string]string{"light": allRules, "dark": colourRules} {
		p.colours(scheme)
		for _, fault := range p.axeOf(rules) {
			p.t.Errorf("%s, %s: %s", path, scheme, fault)
		}
	}
	p.Run(`window.letGo(); return true`)
	p.Run(`return !document.querySelector(".skeleton") && !document.querySelector("[role=alert]")`)
}

// A page that lost the server says when it tries again, and goes on by itself.
func TestServerLost(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("lost-server")
	id := p.submit("lost-server", `1`, client.StatusSucceeded)
	p.Before(`const through = window.fetch;
		window.fetch = (...all) =>
			window.lost ? Promise.reject(new TypeError("no network")) : through(...all);`)
	p.open("/console/tasks?type=lost-server")
	p.See(id)
	p.Run(`return window.lost = true`)
	p.See("The server can't be reached.")
	p.Run(`return /The page tries again (in \d+ s|now)\./.test(words(document.body))`)
	p.See(id) // what was loaded stays
	p.Run(`window.lost = false; return true`)
	p.Gone("The server can't be reached.")
	p.Gone("The page tries again")
	p.See(id)
	p.quiet()
}

// The page of a task that isn't there shows a title, and is asked for once: no timer is left but
// the clock's.
func TestTaskThatIsGone(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("gone-tasks")
	p.Before(`window.timers = new Map();
		const set = window.setInterval, clear = window.clearInterval;
		window.setInterval = (f, ms, ...more) => {
			const id = set(f, ms, ...more);
			timers.set(id, ms);
			return id;
		};
		window.clearInterval = id => { timers.delete(id); clear(id) };`)
	p.open("/console/tasks/gone-tasks.1.999")
	p.See("There is no task gone-tasks.1.999")
	p.Run(`return document.title === "There is no task gone-tasks.1.999 – asyncflow"`)
	p.Run(`return [...timers.values()].join() === "1000"`)
	assert.NotContains(t, p.Text(), "tries again")
	assert.Empty(t, p.axe())
	p.quiet("404")
}

// Who comes back to a list is where they were: as far down, and on the link that they followed.
func TestBack(t *testing.T) {
	p := openPage(t, all...)
	p.delayedTasks("long-list", 50)
	p.resize(1000, 500)
	p.open("/console/tasks?type=long-list")
	const at = `const link = [...document.querySelectorAll("a[data-row]")][40];`
	p.Run(at + `link?.scrollIntoView(); return !!link`)
	p.Run(`return scrollY > 600`)
	top := browsertest.Ask[float64](t, p.ctx, `scrollY`)
	p.Run(at + `link.click(); return true`)
	p.See("Copy id")
	p.Run(`return scrollY === 0`)
	p.Run(`history.back(); return true`)
	p.See("50 tasks match")
	p.Run(at + `return document.activeElement === link`)
	assert.InDelta(t, top, browsertest.Ask[float64](t, p.ctx, `scrollY`), 60)
	p.quiet()
}
