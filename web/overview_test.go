package web_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
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
	p.See("nobody asks for tasks unclaimed firing")
	p.See("below-alerts")
	for heading, text := range map[string]string{"Alerts now": "unclaimed",
		"Task types": "below-alerts"} {
		p.Run(`return [...document.querySelectorAll("section")].some(s =>
			words(s.querySelector("h2")) === ` + browsertest.Quote(heading) + ` &&
			words(s.querySelector("table")).includes(` + browsertest.Quote(text) + `))`)
	}
	assert.Empty(t, p.axe())
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
