package web_test

import (
	"context"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/document"
)

// The overview says how many nodes serve, without their names, and which alerts are firing.
func TestOverviewNow(t *testing.T) {
	p := openPage(t, auth.ScopeRead)
	db := p.database()
	_, err := db.Exec(t.Context(), `INSERT INTO asyncflow.nodes VALUES
		('secret-host', 'api', 'v0', now() - interval '2 h', now() - interval '1 h')`)
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := db.Exec(context.Background(),
			`DELETE FROM asyncflow.nodes WHERE id = 'secret-host'`)
		assert.NoError(t, err)
	})
	p.open("/console")
	p.See("1 node is alive: 1 for requests, 1 for deliveries, 1 for background jobs, version test.")
	p.See("1 node is gone.")
	for _, name := range []string{"testnode", "secret-host"} {
		assert.NotContains(t, p.Text(), name)
	}
	p.See("Alerts are off.")
	a, err := p.api.PutAlerts(t.Context(), client.NewAlerts{URL: p.node.URL + "/alerts",
		Rules: client.AlertRules{NoClaimers: client.NewDuration(time.Hour)}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, p.api.DeleteAlerts(context.Background())) })
	p.open("/console")
	p.See("No alert is firing.")
	p.Run(`return /configuration bytes [\d.]+ (Ki)?B of 16 MiB/.test(words(document.body))`)
	// Until it is below its limit for a minute, it goes on.
	_, err = db.Exec(t.Context(), `INSERT INTO tenant_acme.alert_episodes
		(id, endpoint, alert, subject, since, value, bound) VALUES
		('01890a5d-ac96-774b-bcce-b302099a8057', $1::uuid, 'no_claimers', 'unclaimed',
		  now() - interval '1 h', 4000, 3600)`, a.Endpoint)
	require.NoError(t, err)
	_, err = p.api.PutTaskType(t.Context(), "below-alerts", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	p.open("/console")
	p.See("nobody asks for tasks unclaimed, for 1 h. What to do")
	p.See("below-alerts")
	for heading, text := range map[string]string{"Alerts now": "unclaimed",
		"Task types": "below-alerts"} {
		p.Run(`return [...document.querySelectorAll("section")].some(s =>
			words(s.querySelector("h2")) === ` + browsertest.Quote(heading) + ` &&
			words(s.querySelector("table, ul")).includes(` + browsertest.Quote(text) + `))`)
	}
	assert.Empty(t, p.axe())
	p.quiet()
}

// Alerts are lines, the oldest five, with the URL of an endpoint in place of its id and a link to
// what to do. Tiles lead to what they count.
func TestOverviewAlerts(t *testing.T) {
	p := openPageOf(t, "watched")
	e := p.failing("mail")
	a, err := p.api.PutAlerts(t.Context(), client.NewAlerts{URL: p.node.URL + "/alerts",
		Rules: client.AlertRules{NoClaimers: client.NewDuration(time.Hour),
			EndpointFailureRate: 0.5}})
	require.NoError(t, err)
	db := p.database()
	alert := func(name, subject string, minutes int) {
		_, err := db.Exec(t.Context(), `INSERT INTO tenant_watched.alert_episodes
			(id, endpoint, alert, subject, since, value, bound) VALUES
			(gen_random_uuid(), $1::uuid, $2, $3, now() - $4 * interval '1 min', 1, 0.5)`,
			a.Endpoint, name, subject, minutes)
		require.NoError(t, err)
	}
	alert("endpoint_failing", "mail/only/"+e.ID, 180)
	for i := range 6 {
		alert("no_claimers", "claimed-"+string(rune('a'+i)), 120-i)
	}
	p.open("/console")
	p.See("an endpoint fails " + e.URL + " of mail/only, for 3 h. What to do")
	p.See("and 2 more")
	p.Run(`return document.querySelectorAll(".lines li").length === 5`)
	p.Run(`return [...document.querySelectorAll(".lines li a")].some(a =>
		a.getAttribute("href").endsWith("/docs/alerts.md#endpoint_failing"))`)
	assert.Empty(t, p.axe())
	p.Run(`document.querySelector('.totals a[aria-label^="Failed, last hour"]').click();
		return true`)
	p.See("Nothing failed in the last hour")
	p.quiet()
}

// Where deliveries stand still, the overview says why, and who may can let them go on. A type in
// trouble is above one that is well.
func TestOverviewStandsStill(t *testing.T) {
	p := openPageOf(t, "stuck")
	ctx := t.Context()
	p.delayedTasks("a-fine-one", 1)
	var well atomic.Bool
	e := p.answering("post", func() int {
		if well.Load() {
			return http.StatusOK
		}
		return http.StatusGone
	})
	sent, err := p.api.Submit(ctx, client.NewTask{Type: "post", Context: client.JSON(`2`)})
	require.NoError(t, err)
	p.delayedTasks("halted", 1)
	_, err = p.api.PauseTaskType(ctx, "halted", "a look at the books")
	require.NoError(t, err)
	p.open("/console")
	p.See("Deliveries stand still")
	p.See("1 task of post waits in the stage only, for ")
	p.See(": " + e.URL + ": it has answered 410")
	p.See("halted is paused for")
	p.See("a look at the books")
	p.Run(`return words(document.querySelector("tbody th")) === "post stands still"`)
	assert.Empty(t, p.axe())

	reader, err := p.node.TokenOf("stuck", time.Hour, auth.ScopeRead)
	require.NoError(t, err)
	p.enter(reader)
	p.open("/console")
	p.See("it has answered 410")
	p.Run(`return !called("button", "Enable") && !called("button", "Resume")`)
	p.enter(p.token)
	p.open("/console")
	well.Store(true)
	p.Click("Enable")
	p.See("deliveries flow at once")
	p.Click("Enable")
	p.See("The endpoint is enabled")
	ended, err := p.api.Wait(ctx, sent.ID, patience)
	require.NoError(t, err)
	assert.Equal(t, client.StatusSucceeded, ended.Status)
	p.Gone("it has answered 410")
	p.Click("Resume")
	p.See("In full after")
	p.Click("Resume")
	p.See("halted is resumed")
	p.Gone("Deliveries stand still")
	resumed, err := p.api.TaskType(ctx, "halted")
	require.NoError(t, err)
	assert.True(t, resumed.PausedAt.IsZero())
	p.quiet()
}

// A tenant without types is offered three to begin with: as files that can be applied, and by a
// button.
func TestOverviewTemplates(t *testing.T) {
	p := openPageOf(t, "fresh")
	p.open("/console")
	p.See("There are no task types yet")
	assert.Empty(t, p.axe())
	files := browsertest.Ask[[]string](t, p.ctx, `[...document.querySelectorAll(".command")]
		.map(e => e.textContent).filter(s => s.startsWith("types:"))`)
	require.Len(t, files, 3)
	for _, file := range files {
		doc, err := document.Parse([]byte(file), os.LookupEnv)
		require.NoError(t, err, file)
		require.Len(t, doc.Types, 1)
		made := doc.Types[0]
		_, err = p.api.PutTaskType(t.Context(), made.Name, made.TaskTypeSpec)
		require.NoError(t, err, file)
		require.NoError(t, p.api.DeleteTaskType(t.Context(), made.Name, false))
	}
	p.open("/console")
	p.Click("Create thumbnails")
	p.See("thumbnails is created")
	got, err := p.api.TaskType(t.Context(), "thumbnails")
	require.NoError(t, err)
	assert.Equal(t, "resize", got.Stages[1].Name)
	p.quiet()
}

// An operator sees the nodes by name, and background jobs that fail.
func TestOperatorOverview(t *testing.T) {
	p := openPage(t)
	token, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.logIn(token)
	p.See("Overview")
	p.See("testnode alive")
	p.See("No background job fails.")
	assert.Empty(t, p.axe())
	p.Click("background job")
	p.See("Governance")
	p.See("rescue")
	p.quiet()
}

// An operator sees the tenants in trouble, the worst first, with links and with what is wrong, also
// on a phone.
func TestTenantsInTrouble(t *testing.T) {
	lesser, tenant := again("alesser"), again("troubled")
	p := openPageOf(t, lesser)
	p.recorded(lesser, "cares")
	_, err := p.operator().CreateTenant(t.Context(), tenant, client.Quotas{})
	require.NoError(t, err)
	token, err := p.node.TokenOf(tenant, time.Hour, all...)
	require.NoError(t, err)
	p.use(token)
	p.recorded(tenant, "sorrows")
	a, err := p.api.PutAlerts(t.Context(), client.NewAlerts{URL: p.node.URL + "/alerts",
		Rules: client.AlertRules{NoClaimers: client.NewDuration(time.Hour)}})
	require.NoError(t, err)
	_, err = p.database().Exec(t.Context(), `INSERT INTO tenant_`+tenant+`.alert_episodes
		(id, endpoint, alert, subject, since, value, bound)
		SELECT gen_random_uuid(), $1::uuid, 'no_claimers', 'type ' || n, now(), 1, 0.5
		FROM generate_series(1, 1200) n`, a.Endpoint) // more than any tenant of another test
	require.NoError(t, err)
	p.record(tenant)
	operator, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.enter(operator)
	p.open("/console")
	p.See("Tenants in trouble")
	p.Run(`const rows = [...document.querySelectorAll("section table.rows tbody tr")];
		return words(rows[0]).startsWith(` + browsertest.Quote(tenant) + ` + " 1,200 ") &&
			words(rows[0]).endsWith(" 12") && rows.length <= 10`)
	p.checkPage(shown{"troubled", "/console", tenant})
	p.Run(`const e = document.querySelector("table.rows a[data-row]"); e.click(); return true`)
	p.See("task types")
	assert.Equal(t, "/console/tenants/"+tenant,
		browsertest.Ask[string](t, p.ctx, `location.pathname`))
	p.quiet()
}
