package web_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
)

// A task is submitted by the form of its type, which begins with the context of the last task. The
// digits of its numbers stay. What is refused is said at its field, and what was typed stays.
func TestSubmitATask(t *testing.T) {
	p := openAlways(t, all...)
	p.makeType("handed-in")
	p.open("/console/types/handed-in")
	p.Click("Submit a task")
	assert.Equal(t, "{}", p.Value("Context"), "there is no task yet")
	p.Click("Back")
	first := p.submit("handed-in", `{"n":12345678901234567890.10}`, client.StatusSucceeded)
	p.open("/console/types/handed-in")
	p.Click("Submit a task")
	p.See("It is that of " + first)
	assert.Equal(t, "{\n  \"n\": 12345678901234567890.10\n}", p.Value("Context"))
	p.Fill("Context", "{\n  \"n\": 1,\n}")
	p.Gone("It is that of")
	assert.NotContains(t, p.Text(), "Copy as")
	p.Click("Submit a task")
	p.refuses("Context", "isn't JSON: line 3, column 1, at }")
	p.Fill("Context", `{"n":12345678901234567890.20}`)
	p.Fill("Run no sooner than in", "a while")
	p.Fill("Head start in seconds", "90")
	p.Click("More")
	p.Fill("Idempotency key", "order-7")
	p.Fill("Flow key", "customer-3")
	p.Fill("Must begin by", "2d")
	p.Click("Submit a task")
	p.refuses("Run no sooner than in", "a while")
	p.accessible("the form of a task")
	p.Fill("Run no sooner than in", "1d")
	assert.Equal(t, "customer-3", p.Value("Flow key"))
	p.Click("Submit a task")
	p.See("The task is submitted")
	id := browsertest.Ask[string](t, p.ctx,
		`document.querySelector("main [role=status] a").innerText`)
	got, err := p.api.Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, []any{`{"n":12345678901234567890.20}`, "90", "order-7", "customer-3"},
		[]any{string(got.Context), string(encoded(t, got.Priority)), got.Key, got.FlowKey})
	assert.Greater(t, time.Until(got.OrderTime), 23*time.Hour)
	assert.Greater(t, time.Until(got.Lifetime.StartBy), 47*time.Hour)

	p.Click("Submit a task")
	p.Click("More")
	assert.Empty(t, p.Value("Idempotency key"), "again, it would stand for the same task")
	p.Fill("Idempotency key", "order-7")
	p.Click("Submit a task")
	p.See("The key is that of " + id)
	p.Click(id)
	p.See(id + " waiting")
	p.quiet("400")
}

// On the page of all tasks a type is chosen. An example that nobody changed gives way to that of
// another type.
func TestSubmitATaskOfAType(t *testing.T) {
	p := openPageOf(t, "chooses")
	p.makeType("one")
	p.makeType("other")
	p.submit("other", `"of the other"`, client.StatusSucceeded)
	p.open("/console/tasks")
	p.Click("Submit a task")
	p.offers("Type", "other")
	p.Click("Submit a task")
	p.Run(`return field("Type").validity.valueMissing`)
	p.Fill("Type", "other")
	p.Run(`return field("Context").value === '"of the other"'`)
	p.Fill("Type", "one")
	p.Run(`return field("Context").value === "{}"`)
	p.Fill("Context", `"mine"`)
	p.Fill("Type", "other")
	p.Gone("It is that of")
	assert.Equal(t, `"mine"`, p.Value("Context"))
	p.Click("Submit a task")
	p.See("Submitted other.")
	p.See("succeeded")
	p.quiet()
}

// A submitter who may read nothing still gets the form, and says the type. Who may not submit gets
// no form.
func TestSubmitNeedsTheScope(t *testing.T) {
	p := openAlways(t, auth.ScopeSubmit)
	p.makeType("unseen")
	p.open("/console/tasks")
	p.Click("Submit a task")
	p.Fill("Type", "unseen")
	p.Fill("Context", `{"n":1}`)
	p.Click("Submit a task")
	p.See("Submitted unseen.")
	p.Run(`const said = document.querySelector("main [role=status]");
		return words(said).startsWith("Submitted unseen.") && !said.querySelector("a")`)
	token, err := p.node.NewToken(time.Hour, auth.ScopeRead, auth.ScopeOperate)
	require.NoError(t, err)
	p.enter(token)
	for path, text := range map[string]string{"/console/tasks?type=unseen": "unseen.1.",
		"/console/types/unseen": "Tasks that one lease takes"} {
		p.open(path)
		p.See(text)
		p.Run(`return !called("button", "Submit a task")`)
	}
	p.quiet("403")
}

// The commands of the form submit what was typed.
func TestCommandsOfTheForm(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "commanded", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	p.open("/console/types/commanded")
	p.Click("Submit a task")
	p.Fill("Context", `{"n":1.10}`)
	p.Fill("Run no sooner than in", "2d")
	p.Fill("Head start in seconds", "60")
	p.Click("More")
	p.Fill("Idempotency key", "it's -1")
	var made client.SubmittedTask
	require.NoError(t, json.Unmarshal([]byte(p.shell(p.copied("Copy as curl"))), &made))
	got, err := p.api.Get(t.Context(), made.ID)
	require.NoError(t, err)
	assert.Equal(t, []string{`{"n":1.10}`, "it's -1"}, []string{string(got.Context), got.Key})
	said := p.shell("asyncflow() { for word; do echo \"$word\"; done; cat; }\n" +
		p.copied("Copy as CLI"))
	assert.Equal(t, strings.Join([]string{"tasks", "submit", "--key=it's -1",
		"--delay=2d", "--priority=60", "commanded", "-", `{"n":1.10}`, ""}, "\n"), said)
	p.Fill("Head start in seconds", "[60]")
	p.Gone("Copy as CLI")
	p.quiet()
}

// A link may name any type. Its name, and what a worker or a client chose, runs nothing in the
// shell or the terminal into which a command is pasted.
func TestCommandsOfStrangers(t *testing.T) {
	p := openPage(t, all...)
	for _, name := range []string{"x%3Btouch%20y", "--url%3Dhttps%3A%2F%2Fevil.example"} {
		p.open("/console/tasks?type=" + name)
		p.Click("Submit a task")
		p.See("Copy as curl")
		assert.NotContains(t, p.Text(), "Copy as CLI", name)
		p.Click("Back")
	}
	p.makeType("pasted")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "pasted",
		Context: client.JSON("{\"n\":\"\u007f\u009b2J\"}"), User: "x\u0003\nrm y\n"})
	require.NoError(t, err)
	_, err = p.api.Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.See("Copy as curl")
	assert.NotContains(t, p.Text(), "Copy as CLI")
	assert.NotRegexp(t, "[\u007f-\u009f]", p.copied("Copy as curl"))
}
