package console_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/console"
	"github.com/asyncflow/asyncflow/store"
)

// A person logs in at the issuer by the page's button. When the session ends under a form, a login
// in another tab brings it back, and the form keeps what was typed.
func TestLoginAtTheIssuerKeepsTheForm(t *testing.T) {
	b, i := setupOIDC(t)
	i.with(func() { i.claims["scope"] = "read operate" })
	api, err := client.New(b.url, b.token)
	require.NoError(t, err)
	_, err = api.PutTaskType(t.Context(), "images", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	br := startBrowser(t)
	br.Go(b.url + "/console/types/images")
	br.Click("Log in with your organisation")
	br.Click("Pause")
	assert.Equal(t, "/console/types/images", br.ask(`location.pathname`))
	br.Fill("Reason", "typed before")
	require.Equal(t, "204", br.status("POST", "/console/logout", ""))
	br.Click("Pause")
	br.See("Your session has ended")
	br.Click("Log in with your organisation, in another tab")
	br.Gone("Your session has ended")
	assert.Equal(t, "/console/types/images", br.ask(`location.pathname`))
	assert.Equal(t, "typed before", br.Value("Reason"))
	br.Click("Pause")
	br.See("images is paused")
	paused, err := api.TaskType(t.Context(), "images")
	require.NoError(t, err)
	assert.Equal(t, "typed before", paused.PauseReason)
	br.Go(b.url + "/console/logged-in")
	br.See("Close this tab")
	assert.Empty(t, br.violations())
}

// The page shows the name and the colour of its instance, also in the tab. The name isn't markup.
func TestInstanceInABrowser(t *testing.T) {
	b := setup(t)
	const name = `<img src=x onerror=window.hit=1>`
	b.serve(func(cfg *console.Config) {
		cfg.Instance = console.Instance{Name: name, Color: "#c0ffee"}
	})
	br := startBrowser(t)
	br.Go(b.url + "/console")
	br.See(name)
	br.Fill("Token", b.token)
	br.Click("Log in")
	br.See("Overview")
	br.Run(`return document.title === ` + browsertest.Quote("Overview – "+name+" – asyncflow"))
	br.Run(`return words(document.querySelector("header .brand")) === ` + browsertest.Quote(name))
	assert.Equal(t, "#c0ffee",
		br.ask(`getComputedStyle(document.documentElement).getPropertyValue("--instance").trim()`))
	icon := br.ask(`decodeURIComponent(document.querySelector("link[rel=icon]").href)`)
	assert.Contains(t, icon, `fill="#c0ffee"`)
	require.NoError(t, chromedp.Do(br.ctx, chromedp.Navigate(b.url+"/console/types")))
	br.Run(`return document.title === ` + browsertest.Quote("Task types – "+name+" – asyncflow"))
	assert.Equal(t, "no", br.ask(`"hit" in window ? "yes" : "no"`))
}

// Numbers in the audit are shown with all their digits, and texts as they are. One that turns its
// direction around leaves what stands beside it.
func TestAuditInABrowser(t *testing.T) {
	b := setup(t)
	const text = `<img src=x onerror=window.hit=1>`
	require.NoError(t, b.store.Record(t.Context(),
		store.NewAuditedCall("acme", asyncflow.AuditEntry{
			At: time.Now(), Origin: asyncflow.AuditFromAPI, Action: "task_type.put", Object: text,
			ObjectType: "task_type", Subject: "\u202e" + text, UserAgent: text,
			Outcome: asyncflow.AuditDone,
			Scopes:  text, TokenID: text, Issuer: text, Address: text, RequestID: text,
			Claimed: asyncflow.AuditClaim{Subject: text, Issuer: text},
			Detail: map[string]any{"total": json.Number("12345678901234567890"), "reason": text,
				"share": json.Number("0.10"), "list": []string{text}},
		})))
	br := startBrowser(t)
	br.Go(b.url + "/console/audit")
	br.Fill("Token", b.token)
	br.Click("Log in")
	br.See("total 12345678901234567890")
	br.See("share 0.10")
	br.See("reason " + text)
	assert.Equal(t, "left", br.ask(`(() => {
		const left = e => document.querySelector(".entries summary " + e).getBoundingClientRect().left;
		return left("strong") < left("code") && left("code") < left(".status") ? "left" : "turned";
	})()`))
	br.Run(`document.querySelector(".entries summary").click(); return true`)
	br.See("Detail total 12345678901234567890")
	for _, name := range []string{"Scopes", "User agent", "Issuer", "Claimed subject"} {
		br.See(name + " " + text)
	}
	assert.Equal(t, "no", br.ask(`"hit" in window ? "yes" : "no"`))
	assert.Empty(t, br.violations())
}
