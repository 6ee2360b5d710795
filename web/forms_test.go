package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// offers waits until a field offers a choice.
func (p *page) offers(label, choice string) {
	p.t.Helper()
	p.Run(`return [...field(` + browsertest.Quote(label) +
		`)?.options ?? []].some(o => o.value === ` +
		browsertest.Quote(choice) + `)`)
}

// refuses waits until a field says why it was refused.
func (p *page) refuses(label, why string) {
	p.t.Helper()
	p.Run(`const e = field(` + browsertest.Quote(label) + `); return e?.ariaInvalid === "true" &&
		words(e.closest("label")).includes(` + browsertest.Quote(why) + `)`)
}

// accessible expects that what is shown breaks no rule of axe.
func (p *page) accessible(what string) {
	p.t.Helper()
	for _, fault := range p.axe() {
		p.t.Errorf("%s: %s", what, fault)
	}
}

// A test delivery shows what was sent and what came back, with all digits, and counts for nothing.
func TestTestDelivery(t *testing.T) {
	p := openAlways(t, all...)
	p.makeType("tried")
	endpoints, err := p.api.Endpoints(t.Context(), "tried")
	require.NoError(t, err)
	e := endpoints[1]
	require.Equal(t, "second", e.Stage)
	p.open("/console/endpoints/" + e.ID)
	p.Click("Test")
	p.Fill("Context", `{"n":`)
	p.Click("Test")
	p.refuses("Context", "isn't JSON")
	assert.Equal(t, `{"n":`, p.Value("Context"))
	p.accessible("the form of a test delivery")
	p.Fill("Context", `{"n":12345678901234567890.10}`)
	p.Click("Test")
	p.See("Outcome for a task done")
	p.See("Answer: 200")
	p.See(`"output": {`)
	p.See("POST " + e.URL)
	p.See("Asyncflow-Test: true")
	p.See("Webhook-Signature: v1,")
	p.See(`"test": true`)
	p.See(`"n": 12345678901234567890.10`)
	p.accessible("the result of a test delivery")
	p.Click("Close")

	p.Click("Test")
	p.Fill("Context", `{"fail":true}`)
	p.Click("Test")
	p.See("Outcome for a task failed")
	p.See("onerror=")
	p.Click("Close")
	after, err := p.api.Endpoint(t.Context(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, e, after)
	assert.False(t, browsertest.Ask[bool](t, p.ctx, `"hit" in window`), "no text was run")
	p.quiet()
}

// An endpoint is registered by the form. What the server refuses is said at its field, and what was
// typed stays.
func TestNewEndpoint(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "registered", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "look"}, {Name: "draw"}}})
	require.NoError(t, err)
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	webhook, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var c struct{ Challenge string }
		if webhook.Verify(body, r.Header) == nil && json.Unmarshal(body, &c) == nil {
			json.NewEncoder(w).Encode(map[string]string{"challenge": c.Challenge})
		}
	}))
	t.Cleanup(worker.Close)

	p.open("/console/endpoints?type=registered")
	p.Click("New endpoint")
	p.offers("Stage", "draw")
	assert.Equal(t, "registered", p.Value("Type"))
	p.Fill("Stage", "draw")
	p.Fill("URL", "worker.example.com")
	p.Fill("Weight", "7")
	p.Fill("Most tasks in flight", "20")
	p.Fill("Deliveries that begin", "100/s")
	p.Fill("Most tasks in one request", "50")
	p.Fill("How long a task waits", "20ms")
	p.Fill("A secret that the worker has", secret)
	p.Click("New endpoint")
	p.refuses("URL", "must be an absolute https URL")
	// at the field, and below
	p.Run(`return words(where).split("must be an absolute https URL").length === 3`)
	p.accessible("the form of an endpoint")
	assert.Equal(t, []string{"draw", "worker.example.com", "7"},
		[]string{p.Value("Stage"), p.Value("URL"), p.Value("Weight")})
	p.Fill("URL", worker.URL+"/draw")
	p.Click("New endpoint")
	p.See("The endpoint is verified")
	p.See("it is not shown again")
	p.See(secret)
	p.Click("Close")
	p.See(worker.URL + "/draw")
	made, err := p.api.Endpoints(t.Context(), "registered")
	require.NoError(t, err)
	require.Len(t, made, 1)
	e := made[0]
	assert.Equal(t, "/console/endpoints/"+e.ID,
		browsertest.Ask[string](t, p.ctx, `location.pathname`))
	assert.Equal(t, []any{"draw", 7, 20, "100/s", 50, "20ms", "verified"}, []any{e.Stage, e.Weight,
		e.MaxInFlight, e.Rate.String(), e.Batch.MaxTasks, e.Batch.MaxWait.String(),
		string(e.Verification)})

	p.open("/console/endpoints?type=registered&stage=look")
	p.Click("New endpoint")
	p.offers("Stage", "look")
	assert.Equal(t, "look", p.Value("Stage"))
	p.Fill("URL", "http://127.0.0.1:1/")
	p.Fill("Kind of the new secret", "ed25519")
	p.Click("New endpoint")
	p.See("The endpoint is unverified")
	p.See("whpk_")
	p.accessible("the new secret")
	p.Click("Close")
	p.See("It gets no deliveries until it has echoed a challenge.")
	assert.NotContains(t, p.Text(), "\nTest\n", "it would be refused")
	p.quiet("400")
}

// A schedule is made and changed by the form, which says in words when it runs. What the form
// doesn't show stays, and nobody's changes are overwritten.
func TestSetASchedule(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("scheduled")
	_, err := p.api.PutSchedule(t.Context(), "taken", client.ScheduleSpec{Type: "scheduled",
		Cron: "0 3 * * *", Context: client.JSON(`{"n":1.10}`), Priority: asyncflow.Priority{60}})
	require.NoError(t, err)
	p.open("/console/schedules")
	p.Click("New schedule")
	p.offers("Type of its tasks", "scheduled")
	p.Fill("Name", "taken")
	p.Fill("Type of its tasks", "scheduled")
	p.Fill("Every", "90m")
	p.See("It runs every 1 h 30 min.")
	p.Fill("It runs by", "cron")
	p.Fill("Cron", "30 3 * * 1-5")
	p.Fill("Time zone", "Europe/Nowhere")
	p.See("It runs from Monday to Friday at 03:30, Europe/Nowhere time.")
	p.Fill("Context", `{"n":12345678901234567890.10}`)
	p.Fill("If the last task is not final", "skip")
	p.Click("New schedule")
	p.refuses("Time zone", "Europe/Nowhere")
	p.accessible("the form of a schedule")
	p.Fill("Time zone", "Europe/Berlin")
	p.Click("New schedule")
	p.refuses("Name", "is that of another schedule")
	p.Fill("Name", "weekdays")
	p.Click("New schedule")
	p.See("weekdays is saved")
	p.See("from Monday to Friday at 03:30, Europe/Berlin time")
	made, err := p.api.Schedule(t.Context(), "weekdays")
	require.NoError(t, err)
	assert.Equal(t, []any{"scheduled", "30 3 * * 1-5", "Europe/Berlin", "skip",
		`{"n":12345678901234567890.10}`}, []any{made.Type, made.Cron, made.TimeZone,
		string(made.Overlap), string(made.Context)})

	p.open("/console/schedules/taken")
	p.Click("Edit")
	assert.Equal(t, []string{"cron", "0 3 * * *", `{"n":1.10}`},
		[]string{p.Value("It runs by"), p.Value("Cron"), p.Value("Context")})
	p.Fill("It runs by", "every")
	p.Fill("Every", "120m")
	p.Click("Edit")
	p.See("taken is saved")
	p.See("every 2 h")
	changed, err := p.api.Schedule(t.Context(), "taken")
	require.NoError(t, err)
	assert.Equal(t, []any{2 * time.Hour, "", `{"n":1.10}`, asyncflow.Priority{60}, 2},
		[]any{changed.Every.Std(), changed.Cron, string(changed.Context), changed.Priority,
			changed.Version})

	p.Click("Edit")
	assert.Equal(t, "120m", p.Value("Every"))
	p.Fill("Every", "3h")
	_, err = p.api.PutSchedule(t.Context(), "taken", client.ScheduleSpec{Type: "scheduled",
		Cron: "@daily", Context: client.JSON(`2`)})
	require.NoError(t, err)
	p.Click("Edit")
	p.overtaken("Every", "3h")
	now, err := p.api.Schedule(t.Context(), "taken")
	require.NoError(t, err)
	assert.Equal(t, "@daily", now.Cron)
	p.quiet("400", "412")
}

// overtaken waits until a form says that somebody else's change came first. What was typed stays.
func (p *page) overtaken(label, typed string) {
	p.t.Helper()
	p.See("Somebody changed this meanwhile, or it has gone on.")
	p.Run(`return called("a", "Show it as it is now")?.target === "_blank"`)
	assert.Equal(p.t, typed, p.Value(label))
}

// A form that was opened before somebody else's change doesn't undo it.
func TestOvertakenForms(t *testing.T) {
	p := openPageOf(t, "overtaken")
	p.makeType("shared")
	endpoints, err := p.api.Endpoints(t.Context(), "shared")
	require.NoError(t, err)
	id := endpoints[0].ID
	p.open("/console/endpoints/" + id)
	p.Click("Change")
	p.Fill("Weight", "3")
	most := 40
	_, err = p.api.UpdateEndpoint(t.Context(), id, client.EndpointPatch{MaxInFlight: &most})
	require.NoError(t, err)
	p.Click("Change")
	p.overtaken("Weight", "3")
	p.accessible("a form that was overtaken")
	e, err := p.api.Endpoint(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, []int{asyncflow.DefaultWeight, most}, []int{e.Weight, e.MaxInFlight})

	alerts := client.NewAlerts{URL: "http://127.0.0.1:1/alerts"}
	p.open("/console/alerts")
	p.Click("Set up")
	p.Fill("URL", "http://127.0.0.1:1/mine")
	for _, rate := range []float64{0.25, 0.5} { // it is set up, then changed
		alerts.Rules.FailureRate = rate
		_, err = p.api.PutAlerts(t.Context(), alerts)
		require.NoError(t, err)
		button := map[float64]string{0.25: "Set up", 0.5: "Change"}[rate]
		p.Click(button)
		p.overtaken("URL", "http://127.0.0.1:1/mine")
		now, err := p.api.Alerts(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []any{alerts.URL, rate}, []any{now.URL, now.Rules.FailureRate})
		p.open("/console/alerts")
		p.Click("Change")
		p.Fill("URL", "http://127.0.0.1:1/mine")
	}

	p.open("/console/types/shared")
	p.Click("Edit")
	const typed = `{"stages":[{"name":"first"},{"name":"second","timeout":"7s"}]}`
	p.Fill("The type as JSON", typed)
	_, err = p.api.PutTaskType(t.Context(), "shared", client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "first", Timeout: client.NewDuration(5 * time.Second)}, {Name: "second"}}})
	require.NoError(t, err)
	p.Click("Show changes")
	p.overtaken("The type as JSON", typed)
	p.Click("Show changes")
	p.See(`- removed: "timeout": "5s"`)
	p.Click("Save as a new version")
	p.See("Version 3 of shared is saved")
	p.quiet("412", "404")
}

// A type is made from a sample, after what it will be was shown. One of that name stays as it is.
func TestNewType(t *testing.T) {
	p := openAlways(t, all...)
	p.makeType("present")
	p.open("/console/types")
	p.Click("New type")
	p.Fill("Name", "present")
	p.Click("Show changes")
	p.refuses("Name", "is the name of another type")
	p.Fill("Name", "No name")
	p.Click("Show changes")
	p.refuses("Name", "a lower-case letter")
	p.Fill("Name", "drawn")
	p.Click("Show changes")
	p.See(`+ added: "name": "second"`)
	p.accessible("the form of a type")
	p.Fill("The type as JSON", `{"stages":[{"name":"draw","timeout":"7s"}]}`)
	p.Gone(`"name": "second"`)
	p.Click("Show changes")
	p.See(`"timeout": "7s"`)
	p.Click("Create")
	p.See("Version 1 of drawn is saved")
	p.See("draw")
	made, err := p.api.TaskType(t.Context(), "drawn")
	require.NoError(t, err)
	assert.Equal(t, 7*time.Second, made.Stages[0].Timeout.Std())
	present, err := p.api.TaskType(t.Context(), "present")
	require.NoError(t, err)
	assert.Equal(t, 1, present.Version)
	p.quiet("400", "412")
}

// Who may not manage sees none of the forms.
func TestFormsNeedTheScope(t *testing.T) {
	p := openAlways(t, auth.ScopeRead, auth.ScopeOperate, auth.ScopeSubmit)
	p.makeType("looked-at")
	endpoints, err := p.api.Endpoints(t.Context(), "looked-at")
	require.NoError(t, err)
	for path, text := range map[string]string{
		"/console/endpoints?type=looked-at":     "looked-at / first",
		"/console/endpoints/" + endpoints[0].ID: "Secrets",
		"/console/schedules":                    "Schedules",
		"/console/types":                        "looked-at",
	} {
		p.open(path)
		p.See(text)
		for _, button := range []string{"New endpoint", "Test", "New schedule", "New type"} {
			assert.False(t, browsertest.Ask[bool](t, p.ctx, `[...document.querySelectorAll("button")]
				.some(b => b.innerText === `+browsertest.Quote(button)+`)`), "%s: %s", path, button)
		}
	}
	p.quiet()
}
