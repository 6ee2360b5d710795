package web_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// unfolded waits until the part More of a form is open, or closed.
func (p *page) unfolded(open bool) {
	p.t.Helper()
	is := map[bool]string{true: "true", false: "false"}[open]
	p.Run(`return where.querySelector("details.more")?.open === ` + is)
}

// send sends the form of a dialog, which closes it.
func (p *page) send(label string) {
	p.t.Helper()
	p.Click(label)
	p.Run(`return !document.querySelector("dialog[open]")`)
}

// typed returns all that is in the fields of a dialog.
func (p *page) typed() string {
	p.t.Helper()
	return browsertest.Ask[string](p.t, p.ctx, `[...document.querySelectorAll(
		"dialog :is(input, textarea)")].map(e => e.value).join("\n")`)
}

// strict is a worker that answers challenges and tests only of clients with a certificate. Its
// certificate is its own authority; it is that of clients, too.
type strict struct {
	*httptest.Server
	certificate, key string // PEM
	seen             chan http.Header
}

func newStrict(t *testing.T) *strict {
	t.Helper()
	s := &strict{seen: make(chan http.Header, 100)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			s.seen <- r.Header
			var c struct{ Challenge string }
			_ = json.Unmarshal(body, &c)
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]string{"challenge": c.Challenge})
		}))
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	t.Cleanup(s.Close)
	key, err := x509.MarshalPKCS8PrivateKey(s.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	s.certificate = string(pem.EncodeToMemory(
		&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	s.key = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
	return s
}

// gets makes the endpoint challenged, and expects two headers of that.
func (s *strict) gets(p *page, id, apiKey, authorization string) {
	p.t.Helper()
	for len(s.seen) > 0 {
		<-s.seen
	}
	e, err := p.api.VerifyEndpoint(p.t.Context(), id)
	require.NoError(p.t, err)
	require.Empty(p.t, e.VerificationError)
	h := <-s.seen
	assert.Equal(p.t, []string{apiKey, authorization},
		[]string{h.Get("X-Api-Key"), h.Get("Authorization")})
}

// Headers, the login and certificates of an endpoint are set by the form, below More. Secrets are
// never shown again, and stay unless they are replaced.
func TestHeadersAndLoginOfAnEndpoint(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "secured",
		client.TaskTypeSpec{Stages: []client.Stage{{Name: "look"}}})
	require.NoError(t, err)
	w := newStrict(t)

	p.open("/console/endpoints?type=secured&stage=look")
	p.Click("New endpoint")
	p.offers("Stage", "look")
	p.unfolded(false)
	p.accessible("the folded form")
	p.Fill("URL", w.URL)
	p.Click("More")
	p.Click("Add a header")
	p.Fill("Header", "Host")
	p.Fill("Its value", "k-123456")
	p.Fill("Login", "basic")
	p.Fill("User name", "a:da")
	p.Fill("Password", "p-123456")
	p.Fill("Client certificate", w.certificate)
	p.Click("More")
	p.unfolded(false)
	p.Click("New endpoint")
	p.unfolded(true)
	p.refuses("Its value", "can't be yours")
	p.refuses("User name", "must not hold a colon")
	p.refuses("Private key", "is required with a certificate")
	p.accessible("the form with what was refused")
	assert.Equal(t, "password password", browsertest.Ask[string](t, p.ctx,
		`[...document.querySelectorAll("details.more input[type=password]")].map(e => e.type).join(" ")`))
	p.Fill("Header", "no name")
	p.Click("New endpoint")
	p.Run(`return words(where).includes("has a name that is none")`)
	p.Fill("Header", "X-Api-Key")
	p.Click("Add a header")
	p.Run(`const e = where.querySelector("[aria-label='header 2'] input"); if (!e) return false;
		e.value = "X-Api-Key"; e.dispatchEvent(new Event("input", {bubbles: true})); return true`)
	p.Click("New endpoint")
	p.refuses("Its value", "is given twice")
	p.Run(`const e = where.querySelector("[aria-label='header 2'] button"); e?.click(); return !!e`)
	p.Fill("User name", "ada")
	p.Fill("Authorities", w.certificate)
	p.Fill("Private key", w.key)
	p.Click("New endpoint")
	p.See("The endpoint is verified")
	p.Click("Close")
	p.See("X-Api-Key")
	p.See("basic, as ada")
	made, err := p.api.Endpoints(t.Context(), "secured")
	require.NoError(t, err)
	require.Len(t, made, 1)
	e := made[0]
	assert.Equal(t, map[string]string{"X-Api-Key": asyncflow.Mask}, e.Headers)
	assert.Equal(t, asyncflow.EndpointAuth{Kind: asyncflow.AuthBasic, Username: "ada",
		Password: asyncflow.Mask}, e.Auth)
	assert.Equal(t, asyncflow.EndpointTLS{CA: w.certificate, Certificate: w.certificate,
		Key: asyncflow.Mask}, e.TLS)
	w.gets(p, e.ID, "k-123456", "Basic YWRhOnAtMTIzNDU2")

	p.Click("Change")
	p.Click("More")
	p.accessible("the form of a change")
	assert.NotRegexp(t, `k-123456|p-123456|PRIVATE KEY|\*\*\*`, p.typed())
	p.Fill("Most tasks in flight", "9")
	p.Fill("Most tasks in one request", "5")
	p.send("Change")
	changed, err := p.api.Endpoint(t.Context(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, []any{9, 5, e.Headers, e.Auth, e.TLS}, []any{changed.MaxInFlight,
		changed.Batch.MaxTasks, changed.Headers, changed.Auth, changed.TLS})
	w.gets(p, e.ID, "k-123456", "Basic YWRhOnAtMTIzNDU2")

	p.Click("Change")
	p.Click("More")
	p.Fill("Replace the headers X-Api-Key", "")
	p.Run(`return field("Header")?.value === "X-Api-Key"`)
	p.Fill("Login", "bearer")
	p.Fill("Token", "t-123456")
	p.Click("Change")
	p.Run(`return field("Its value")?.ariaInvalid === "true"`)
	p.Fill("Its value", "k-654321")
	p.send("Change")
	w.gets(p, e.ID, "k-654321", "Bearer t-123456")

	p.Click("Change")
	p.Click("More")
	p.Fill("Login", "oauth2")
	p.Fill("URL that gives tokens", "nowhere")
	p.Fill("Scopes", "a  b")
	p.Click("Change")
	p.refuses("URL that gives tokens", "must be an absolute https URL")
	p.refuses("Client id", "is required")
	p.refuses("Client secret", "is required")
	p.Fill("URL that gives tokens", w.URL+"/token")
	p.Fill("Client id", "asyncflow")
	p.Fill("Client secret", "s-123456")
	p.send("Change")
	changed, err = p.api.Endpoint(t.Context(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.EndpointAuth{Kind: asyncflow.AuthOAuth2, TokenURL: w.URL + "/token",
		ClientID: "asyncflow", ClientSecret: asyncflow.Mask, Scopes: []string{"a", "b"}},
		changed.Auth)

	p.Click("Change")
	p.Fill("URL", "https://elsewhere.example.com/")
	p.Click("Change")
	p.refuses("URL", "give headers and auth again")
	p.Click("More")
	p.Fill("Replace the headers X-Api-Key", "")
	p.Click("Remove the header")
	p.Fill("Login", "none")
	p.Fill("Replace the certificates", "")
	p.Run(`return !!field("Authorities")?.value.includes("CERTIFICATE")`)
	assert.NotContains(t, p.typed(), "PRIVATE KEY")
	p.Fill("Authorities", "")
	p.Fill("Client certificate", "")
	p.Fill("URL", w.URL+"/moved")
	p.send("Change")
	changed, err = p.api.Endpoint(t.Context(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, []any{w.URL + "/moved", map[string]string(nil), asyncflow.EndpointAuth{},
		asyncflow.EndpointTLS{}, 9}, []any{changed.URL, changed.Headers, changed.Auth, changed.TLS,
		changed.MaxInFlight})

	p.open("/console/endpoints?type=secured&stage=look")
	p.Click("New endpoint")
	p.offers("Stage", "look")
	p.Fill("URL", w.URL+"/moved")
	p.Click("New endpoint")
	p.See("409")
	p.Click("More")
	p.Fill("Another endpoint of the stage may have this URL", "")
	p.Click("New endpoint")
	p.See("it is not shown again")
	made, err = p.api.Endpoints(t.Context(), "secured")
	require.NoError(t, err)
	assert.Len(t, made, 2)
	p.quiet("400", "409", "[DOM]") // hints: it takes each password for a login's
}

// Priority, retries and dependencies of a schedule's tasks are set by the form, below More. What
// isn't touched stays as it is stored.
func TestOptionsOfASchedule(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("optional")
	whole := func(name string) client.Schedule {
		s, err := p.api.Schedule(t.Context(), name)
		require.NoError(t, err)
		return s
	}
	p.open("/console/schedules")
	p.Click("New schedule")
	p.offers("Type of its tasks", "optional")
	p.unfolded(false)
	p.Fill("Name", "with-options")
	p.Fill("Type of its tasks", "optional")
	p.Fill("Every", "1h")
	p.Click("More")
	p.Fill("Head start", "soon")
	p.Click("New schedule")
	p.refuses("Head start", "must be a whole number")
	p.Fill("Head start", "[60, 0]")
	p.Fill("Most attempts", "7")
	p.Fill("Pauses between attempts", "min(attempt")
	p.Fill("Its tasks get the results", "")
	p.Click("More")
	p.Click("New schedule")
	p.unfolded(true)
	p.refuses("Pauses between attempts", "is not a valid expression")
	p.refuses("Its tasks get the results", "needs depends_on")
	p.Fill("Pauses between attempts", "min(attempt, 60)")
	p.Click("Add a dependency")
	p.Click("New schedule")
	p.refuses("Id of the task", "is required, or type and key")
	p.accessible("the form of a schedule with its options")
	p.Fill("Or its type", "optional")
	p.Fill("And its idempotency key", `the "first"`)
	p.Fill("If that task fails", "run")
	p.Fill("Wait at most", "24h")
	p.Fill("Most runs that are caught up", "0")
	p.Run(`return field("Most runs that are caught up").validity.rangeUnderflow`)
	p.Fill("Most runs that are caught up", "12")
	p.Click("New schedule")
	p.See("with-options is saved")
	s := whole("with-options")
	wait := client.NewDuration(24 * time.Hour)
	assert.Equal(t, []any{asyncflow.Priority{60, 0}, asyncflow.RetryPolicy{MaxAttempts: 7,
		Interval: asyncflow.Rule("min(attempt, 60)")}, []asyncflow.Dependency{{Type: "optional",
		Key: `the "first"`, OnFailure: asyncflow.DependentRuns, WaitFor: wait}}, "dependencies",
		12},
		[]any{s.Priority, s.Retry, s.DependsOn, s.ContextFrom, s.CatchUpLimit})

	p.open("/console/schedules/with-options")
	p.Click("Edit")
	p.Fill("Every", "2h")
	p.send("Edit")
	p.See("every 2 h")
	after := whole("with-options")
	assert.Equal(t, 2*time.Hour, after.Every.Std())
	assert.Equal(t, []any{s.Priority, s.Retry, s.DependsOn, s.ContextFrom, s.CatchUpLimit},
		[]any{after.Priority, after.Retry, after.DependsOn, after.ContextFrom, after.CatchUpLimit})

	p.Click("Edit")
	p.Click("More")
	assert.Equal(t, []string{"[60,0]", "7", "min(attempt, 60)", `the "first"`, "run", "24h"},
		[]string{p.Value("Head start"), p.Value("Most attempts"), p.Value("Pauses between"),
			p.Value("And its idempotency key"), p.Value("If that task fails"),
			p.Value("Wait at most")})
	p.Fill("Head start", "")
	p.Fill("Most attempts", "")
	p.Fill("Pauses between attempts", "[10, 60]")
	p.Click("Remove the dependency")
	p.Fill("Its tasks get the results", "")
	p.send("Edit")
	after = whole("with-options")
	assert.Equal(t, []any{asyncflow.Priority(nil),
		asyncflow.RetryPolicy{Interval: asyncflow.Seconds(10, 60)}, []asyncflow.Dependency(nil),
		""},
		[]any{after.Priority, after.Retry, after.DependsOn, after.ContextFrom})
	p.quiet("400")
}
