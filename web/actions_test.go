package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// act is a button, what is filled in after it is pressed, and what the page then says.
type act struct {
	label  string
	asks   bool
	fields [][2]string
	says   string
	check  func() // of its effect, by the API
}

// do does what can be done on a page, one after the other.
func (p *page) do(path string, acts ...act) {
	p.t.Helper()
	p.open(path)
	p.doHere(acts...)
}

// doHere is do on the present page.
func (p *page) doHere(acts ...act) {
	p.t.Helper()
	for _, a := range acts {
		p.Click(a.label)
		for _, f := range a.fields {
			p.Fill(f[0], f[1])
		}
		if a.asks || len(a.fields) > 0 {
			p.Run(`return where.matches("dialog")`)
			p.Click(a.label)
		}
		p.See(a.says)
		if a.check != nil {
			a.check()
		}
	}
}

// has returns a check that a call returns something that meets a condition, soon: the page may say
// the same as after an earlier change.
func has[T any](p *page, call func() (T, error), ok func(T) bool) func() {
	return func() {
		p.t.Helper()
		require.Eventually(p.t, func() bool {
			got, err := call()
			return err == nil && ok(got)
		}, patience, 10*time.Millisecond)
	}
}

// gone returns a check that a call is refused since there is no such thing.
func gone[T any](p *page, call func() (T, error)) func() {
	return func() {
		p.t.Helper()
		_, err := call()
		assert.Equal(p.t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	}
}

// All that can be done with a type, and with its tasks.
func TestActionsOnTypes(t *testing.T) {
	p := openPage(t, all...)
	ctx := t.Context()
	p.makeType("actions")
	get := func() (client.TaskType, error) { return p.api.TaskType(ctx, "actions") }
	p.do("/console/types/actions",
		act{label: "Pause", fields: [][2]string{{"Reason", "a look"}}, says: "actions is paused",
			check: has(p, get, func(c client.TaskType) bool { return c.PauseReason == "a look" })},
		act{label: "Resume", fields: [][2]string{{"In full after", "5m"}},
			says: "actions is resumed", check: has(p, get, func(c client.TaskType) bool {
				return c.PausedAt.IsZero() && time.Until(c.RampUntil) > 4*time.Minute
			})})
	p.See("It is ramped up")

	p.Click("Edit")
	p.Run(`return field("The type as JSON")?.value.includes("first")`)
	edited := strings.Replace(p.Value("The type as JSON"), "{", `{"max_in_flight": 17,
		"searchable": ["user"], `, 1)
	p.Fill("The type as JSON", edited)
	p.Click("Show changes")
	p.See(`added: "max_in_flight": 17`)
	p.Click("Save as a new version")
	p.See("Version 2 of actions is saved")
	has(p, get, func(c client.TaskType) bool { return c.MaxInFlight == 17 })()

	// Back to the first version.
	p.Click("Edit")
	p.Run(`const doc = field("The type as JSON")?.value ?? "";
		return doc.includes("searchable") && !doc.includes("searchable_from")`)
	p.Fill("Begin with version", "1")
	p.Run(`return field("The type as JSON")?.value.includes("max_in_flight") === false`)
	p.Click("Show changes")
	p.See(`removed: "max_in_flight": 17`)
	p.Click("Save as a new version")
	p.See("Version 3 of actions is saved")
	has(p, get, func(c client.TaskType) bool { return c.MaxInFlight == 0 && c.Version == 3 })()

	later := func() client.SubmittedTask {
		task, err := p.api.Submit(ctx, client.NewTask{Type: "actions", Context: client.JSON(`1`),
			Delay: client.NewDuration(time.Hour)})
		require.NoError(t, err)
		return task
	}
	task := later()
	number := func(status client.Status, n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			list, err := p.api.List(ctx, client.ListParams{Type: "actions", Status: status})
			if err != nil || len(list.Data) != n {
				return false
			}
			for _, c := range list.Data {
				if c.Status == client.StatusSucceeded && c.RerunOf != task.ID {
					return false
				}
			}
			return true
		}, patience, 10*time.Millisecond)
	}
	p.do("/console/tasks/"+task.ID,
		act{label: "Edit", fields: [][2]string{{"Head start", "60"}, {"Run no sooner", "2h"}},
			says: "The task is changed",
			check: has(p, func() (client.Task, error) { return p.api.Get(ctx, task.ID) },
				func(c client.Task) bool {
					return string(encoded(t, c.Priority)) == "60" &&
						time.Until(c.OrderTime).Round(time.Hour) == 2*time.Hour
				})},
		act{label: "Cancel", asks: true, says: "The task is cancelled"},
		act{label: "Run again", asks: true, says: "runs it again"})
	number(client.StatusSucceeded, 1)
	other := later()
	p.do("/console/tasks?type=actions&status=waiting", act{label: "Delay all that match",
		fields: [][2]string{{"Run no sooner", "3h"}}, says: "Delay all that match: started"})
	require.Eventually(t, func() bool {
		c, err := p.api.Get(ctx, other.ID)
		return err == nil && time.Until(c.OrderTime) > 2*time.Hour
	}, patience, 10*time.Millisecond)
	p.do("/console/tasks?type=actions&status=cancelled", act{label: "Run all that match again",
		asks: true, says: "Run all that match again: started"})
	number(client.StatusSucceeded, 2)
	erased := func(id string) func() {
		return has(p, func() (client.Task, error) { return p.api.Get(ctx, id) },
			func(c client.Task) bool { return c.Erased != nil && len(c.Context) == 0 })
	}
	p.do("/console/tasks/"+task.ID, act{label: "Erase contents", asks: true,
		says: "The contents are erased", check: erased(task.ID)})
	unwanted := later()
	_, err := p.api.Cancel(ctx, unwanted.ID, "")
	require.NoError(t, err)
	p.do("/console/tasks?type=actions&status=cancelled", act{
		label: "Erase contents of all that match", asks: true,
		says: "Erase contents of all that match: started", check: erased(unwanted.ID)})
	later()
	p.do("/console/tasks?type=actions", act{label: "Cancel all that match",
		fields: [][2]string{{"The most tasks", "0.01"}}, says: "Cancel all that match: started"})
	begun := func() string {
		return browsertest.Ask[string](t, p.ctx, `new URLSearchParams(location.search).get("id")`)
	}
	id := begun()
	p.doHere(act{label: "Stop", asks: true, says: "The operation is stopped",
		check: has(p, func() (client.Operation, error) { return p.api.Operation(ctx, id) },
			func(o client.Operation) bool { return o.State == "stopped" })})
	p.do("/console/tasks?type=actions", act{label: "Cancel all that match", asks: true,
		says: "Cancel all that match: started"})
	id = begun()
	require.Eventually(t, func() bool {
		o, err := p.api.Operation(ctx, id)
		return err == nil && o.State == "done"
	}, patience, 10*time.Millisecond)
	p.do("/console/types/actions", act{label: "Delete",
		fields: [][2]string{{"Type actions to confirm", "actions"}}, says: "actions is deleted",
		check: gone(p, get)})
	p.quiet(p.missing("/v1/task-types/actions"))
}

// A flow key that a failed task blocks is released.
func TestReleaseAFlowKey(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("blocked")
	spec := client.TaskTypeSpec{Flow: &asyncflow.Flow{Ordered: true,
		OnFailure: asyncflow.FlowBlock}, Stages: []client.Stage{{Name: "first"},
		{Name: "second", Retry: client.RetryPolicy{MaxAttempts: 1}}}}
	_, err := p.api.PutTaskType(t.Context(), "blocked", spec)
	require.NoError(t, err)
	var ids []string
	for _, doc := range []string{`{"fail":true}`, `1`} {
		task, err := p.api.Submit(t.Context(), client.NewTask{Type: "blocked", FlowKey: "c-17",
			Context: client.JSON(doc)})
		require.NoError(t, err)
		ids = append(ids, task.ID)
	}
	failed, err := p.api.Wait(t.Context(), ids[0], patience)
	require.NoError(t, err)
	require.Equal(t, client.StatusFailed, failed.Status)
	p.do("/console/types/blocked", act{label: "Release a flow key",
		fields: [][2]string{{"Flow key", "c-17"}}, says: "1 failed tasks no longer block c-17"})
	next, err := p.api.Wait(t.Context(), ids[1], patience)
	require.NoError(t, err)
	assert.Equal(t, client.StatusSucceeded, next.Status)
	p.quiet()
}

// All that can be done with an endpoint. After a rotation the page says until when the old secret
// signs.
func TestActionsOnEndpoints(t *testing.T) {
	p := openAlways(t, all...)
	ctx := t.Context()
	p.makeType("reached")
	endpoints, err := p.api.Endpoints(ctx, "reached")
	require.NoError(t, err)
	id := endpoints[0].ID
	get := func() (client.Endpoint, error) { return p.api.Endpoint(ctx, id) }
	p.do("/console/endpoints/"+id,
		act{label: "Verify", asks: true, says: "The endpoint is verified",
			check: has(p, get, func(e client.Endpoint) bool {
				return e.VerifiedAt.After(endpoints[0].VerifiedAt)
			})},
		act{label: "Change", fields: [][2]string{{"Weight", "7"}, {"Most tasks in flight", "3"},
			{"Deliveries that begin", "100/s"}}, says: "The endpoint is changed",
			check: has(p, get, func(e client.Endpoint) bool {
				return e.Weight == 7 && e.MaxInFlight == 3 &&
					string(encoded(t, e.Rate)) == `"100/s"`
			})},
		act{label: "Rotate the secret", fields: [][2]string{{"Overlap", "1h30m"}},
			says: "The endpoint has a new secret",
			check: has(p, get, func(e client.Endpoint) bool {
				left := time.Until(e.OldSecretSignsUntil)
				return len(e.Secrets) == 2 && left > 80*time.Minute && left <= 90*time.Minute
			})})
	shown := browsertest.Ask[string](t, p.ctx, `document.querySelector(".secret code").innerText`)
	assert.True(t, strings.HasPrefix(shown, "whsec_"), "%.8s", shown)
	p.Click("Close")
	p.Gone(shown)
	p.See("Deliveries are also signed with older secrets. The last of them ends in 1 h 29 min")
	p.Run(`return [...document.querySelectorAll("tr")].filter(r => /^whsec|in 1 h 29 min$/
		.test(words(r))).length === 1`)
	p.do("/console/endpoints/"+id, act{label: "Delete", asks: true, says: "The endpoint is deleted",
		check: gone(p, get)})
	p.quiet(p.missing("/v1/endpoints/" + id))
}

// An endpoint that answered 410 is enabled again.
func TestEnableAnEndpoint(t *testing.T) {
	p := openPage(t, all...)
	ctx := t.Context()
	_, err := p.api.PutTaskType(ctx, "left", client.TaskTypeSpec{Stages: []client.Stage{
		{Name: "only", Retry: client.RetryPolicy{MaxAttempts: 1}}}})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Challenge string }
		if json.NewDecoder(r.Body).Decode(&body) == nil && body.Challenge != "" {
			_ = json.NewEncoder(w).Encode(map[string]string{"challenge": body.Challenge})
			return
		}
		w.WriteHeader(http.StatusGone)
	}))
	defer server.Close()
	e, err := p.api.CreateEndpoint(ctx, client.NewEndpoint{Type: "left", Stage: "only",
		URL: server.URL})
	require.NoError(t, err)
	task, err := p.api.Submit(ctx, client.NewTask{Type: "left", Context: client.JSON(`1`)})
	require.NoError(t, err)
	_, err = p.api.Wait(ctx, task.ID, patience)
	require.NoError(t, err)
	p.open("/console/endpoints/" + e.ID)
	p.See("it has answered 410")
	p.do("/console/endpoints/"+e.ID,
		act{label: "Enable", asks: true, says: "The endpoint is enabled",
			check: has(p, func() (client.Endpoint, error) { return p.api.Endpoint(ctx, e.ID) },
				func(e client.Endpoint) bool { return e.Health.State == "closed" })})
	p.See("Delivering.")
	p.quiet()
}

// All that can be done with a schedule.
func TestActionsOnSchedules(t *testing.T) {
	p := openAlways(t, all...)
	ctx := t.Context()
	p.makeType("scheduled")
	_, err := p.api.PutSchedule(ctx, "hourly", client.ScheduleSpec{Type: "scheduled",
		Cron: "@hourly", Context: client.JSON(`{"n":12345678901234567890}`)})
	require.NoError(t, err)
	get := func() (client.Schedule, error) { return p.api.Schedule(ctx, "hourly") }
	p.do("/console/schedules/hourly",
		act{label: "Pause", says: "hourly is paused",
			check: has(p, get, func(s client.Schedule) bool { return !s.PausedAt.IsZero() })},
		act{label: "Resume", asks: true, says: "hourly is resumed",
			check: has(p, get, func(s client.Schedule) bool { return s.PausedAt.IsZero() })},
		act{label: "Trigger now", asks: true, says: "scheduled.1."})
	id := browsertest.Ask[string](t, p.ctx, `location.pathname.split("/").pop()`)
	task, err := p.api.Get(ctx, id)
	require.NoError(t, err)
	assert.Equal(t, `{"n":12345678901234567890}`, string(task.Context))
	p.do("/console/schedules/hourly", act{label: "Delete",
		fields: [][2]string{{"Type hourly to confirm", "hourly"}}, says: "hourly is deleted",
		check: gone(p, get)})
	p.quiet(p.missing("/v1/schedules/hourly"))
}

// Alerts are set, changed and turned off.
func TestActionsOnAlerts(t *testing.T) {
	p := openPageOf(t, "alerted")
	get := func() (client.Alerts, error) { return p.api.Alerts(t.Context()) }
	const url = "http://127.0.0.1:1/alerts"
	p.do("/console/alerts",
		act{label: "Set up", fields: [][2]string{{"URL", url}, {"Share of a type", "12.5"}},
			says: "The alerts are set", check: has(p, get, func(a client.Alerts) bool {
				return a.URL == url && a.Rules.FailureRate == 0.125
			})})
	p.Click("Close") // the new secret
	p.See("Now Nothing is amiss. Ended in the last 30 days None has ended.")
	p.do("/console/alerts",
		act{label: "Change", fields: [][2]string{{"A task has been due", "7m"}},
			says: "The alerts are set", check: has(p, get, func(a client.Alerts) bool {
				return a.Rules.BacklogAge.Std() == 7*time.Minute && a.Rules.FailureRate == 0.125
			})},
		act{label: "Change", fields: [][2]string{{"Tasks of a type that failed", "3"},
			{"For both: within", "30m"}, {"A flow key has stood still", "15m"},
			{"1 % of the started tasks", "30s"}, {"Started within", "10m"}},
			says: "The alerts are set", check: has(p, get, func(a client.Alerts) bool {
				r := a.Rules
				return r.FailedForGood == 3 && r.FailedWithin.Text() == "30m" &&
					r.BlockedKey.Text() == "15m" && r.LongWait.Text() == "30s" &&
					r.LongWaitWithin.Text() == "10m" && r.FailureRate == 0.125
			})},
		act{label: "Turn off", asks: true, says: "Alerts are off", check: gone(p, get)})
	p.quiet("/v1/alerts")
}

// All that an operator can do with a tenant.
func TestActionsOnTenants(t *testing.T) {
	p := openAlways(t)
	operator := p.operator()
	token, err := p.node.OperatorToken()
	require.NoError(t, err)
	p.logIn(token)
	get := func() (client.Tenant, error) { return operator.Tenant(t.Context(), "made") }
	state := func(want asyncflow.TenantState) func() {
		return has(p, get, func(c client.Tenant) bool { return c.State == want })
	}
	p.do("/console/tenants", act{label: "New tenant", fields: [][2]string{{"Name", "made"}},
		says: "made is created", check: state("active")})
	p.do("/console/tenants/made",
		act{label: "Change quotas", fields: [][2]string{{"task types", "7"}},
			says:  "The quotas are changed",
			check: has(p, get, func(c client.Tenant) bool { return c.Quotas.TaskTypes == 7 })})
	p.Click("Change quotas")
	p.Fill("task types", "8")
	_, err = operator.SuspendTenant(t.Context(), "made", "by somebody else")
	require.NoError(t, err)
	p.Click("Change quotas")
	p.overtaken("task types", "8")
	_, err = operator.ResumeTenant(t.Context(), "made")
	require.NoError(t, err)
	p.do("/console/tenants/made",
		act{label: "Suspend", fields: [][2]string{{"Reason", "unpaid"}}, says: "made is suspended",
			check: has(p, get, func(c client.Tenant) bool { return c.Reason == "unpaid" })},
		act{label: "Resume", says: "made is resumed", check: state("active")},
		act{label: "Delete",
			fields: [][2]string{{"Grace period", "2h"}, {"Type made to confirm", "made"}},
			says:   "made is deleted", check: state("deleted")},
		act{label: "Change the grace period",
			fields: [][2]string{{"Grace period", "300h"}, {"Type made to confirm", "made"}},
			says:   "Can be restored until in 12 d",
			check: has(p, get, func(c client.Tenant) bool {
				return time.Until(c.DropAt) > 299*time.Hour
			})},
		act{label: "Restore", says: "made is restored",
			check: has(p, get, func(c client.Tenant) bool { return c.State != "deleted" })})
	p.quiet("412")
}

// The command that the page of a task copies submits it again, also with a context that is too long
// for an argument.
func TestCopiedCommands(t *testing.T) {
	p := openAlways(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "copied", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	doc := `{"text":` + browsertest.Quote("'\"$(exit 1)`exit 1`\\END\n'") +
		`,"END":12345678901234567890,"long":"` + strings.Repeat("it's ", 50<<10) + `"}`
	var task, submitted client.SubmittedTask
	require.NoError(t, json.Unmarshal(p.post("/v1/tasks",
		`{"type":"copied","flow_key":"it's $HOME","priority":7,"context":`+doc+`}`, "test"), &task))
	p.open("/console/tasks/" + task.ID)
	p.Run(`navigator.clipboard.writeText = () => Promise.reject(new Error("no")); return true`)
	p.Click("Copy as curl")
	p.See("Not copied: the browser refuses")
	p.quiet()
	p.See("Copy as curl")
	require.NoError(t, json.Unmarshal([]byte(p.shell(p.copied("Copy as curl"))), &submitted))
	assert.NotEqual(t, task.ID, submitted.ID)
	again, err := p.api.Get(t.Context(), submitted.ID)
	require.NoError(t, err)
	assert.True(t, doc == string(again.Context), "%.500s", again.Context)
	assert.Equal(t, "it's $HOME", again.FlowKey)
	assert.Equal(t, "7", string(encoded(t, again.Priority)))

	said := p.shell("asyncflow() { for word; do echo \"$word\"; done; cat; }\n" +
		p.copied("Copy as CLI"))
	words := "tasks\nsubmit\n--priority=7\n--flow-key=it's $HOME\ncopied\n-\n"
	assert.True(t, words+doc+"\n" == said, "%.500s", said)
}

// copied returns the text that a button copies.
func (p *page) copied(label string) string {
	p.t.Helper()
	p.Run(`navigator.clipboard.writeText = async text => { window.copied = text }; return true`)
	p.Click(label)
	p.Run(`return "copied" in window`)
	return browsertest.Ask[string](p.t, p.ctx, `(() => {
		const text = window.copied; delete window.copied; return text })()`)
}

// shell returns the output of commands of somebody with a token.
func (p *page) shell(commands string) string {
	p.t.Helper()
	token, err := p.node.NewToken(time.Hour, auth.ScopeSubmit)
	require.NoError(p.t, err)
	script := filepath.Join(p.t.TempDir(), "commands.sh")
	require.NoError(p.t, os.WriteFile(script, []byte(commands), 0o600))
	cmd := exec.CommandContext(p.t.Context(), "sh", script)
	cmd.Env = append(os.Environ(), "ASYNCFLOW_TOKEN="+token)
	out, err := cmd.Output()
	require.NoError(p.t, err, "%s", out)
	return string(out)
}
