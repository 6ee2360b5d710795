package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
)

// One form changes the context, the time, the priority, the lifetime and the retries of a task in
// line. It sends only what was changed.
func TestEditATask(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "edited", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "edited",
		Context:  client.JSON(`{"n":12345678901234567890.10}`),
		Priority: client.Priority{30}, Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	get := func() client.Task {
		t.Helper()
		got, err := p.api.Get(t.Context(), task.ID)
		require.NoError(t, err)
		return got
	}
	p.open("/console/tasks/" + task.ID)
	p.See("waits for its time")
	p.Click("Edit")
	assert.Equal(t, []string{`{"n":12345678901234567890.10}`, "30", ""},
		[]string{p.Value("Context"), p.Value("Head start"), p.Value("Run no sooner")})
	p.Click("Edit")
	p.See("Nothing has been changed yet.")
	p.accessible("the form of a task in line")
	p.Fill("Context", `{"n":}`)
	p.Click("Edit")
	p.refuses("Context", "isn't JSON: line 1, column 6, at }")
	p.Fill("Context", `{"n":2.0}`)
	p.Fill("Run no sooner than in", "forever")
	p.Click("Edit")
	p.refuses("Run no sooner than in", "forever")
	p.Fill("Run no sooner than in", "2h")
	p.Fill("Head start", "60")
	p.Click("More")
	p.Fill("Must end by", "3d")
	p.Fill("Retry policy", `{"max_attempts":7}`)
	p.Click("Edit")
	p.See("The task is changed")
	p.See(`"n": 2.0`)
	got := get()
	assert.Equal(t, asyncflow.Priority{60}, got.Priority)
	assert.Equal(t, 7, got.Retry.MaxAttempts)
	assert.Greater(t, time.Until(got.OrderTime), 110*time.Minute)
	assert.Greater(t, time.Until(got.Lifetime.EndBy), 71*time.Hour)
	attempts, err := p.api.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	assert.Equal(t, `{"n":2.0}`, string(attempts[len(attempts)-1].Output))
	p.See(`priority: 30 becomes 60`)
	p.See(`retry: none becomes {"max_attempts":7}`)

	p.Run(`return !where.matches("dialog")`)
	p.Click("Edit")
	assert.Equal(t, `{"n":2.0}`, p.Value("Context"))
	assert.Equal(t, "60", p.Value("Head start"))
	p.Fill("Head start", "")
	p.Click("Edit")
	p.Run(`return !where.matches("dialog")`)
	after := get()
	assert.Equal(t, asyncflow.Priority{0}, after.Priority)
	assert.Equal(t, []any{got.Retry, got.Lifetime}, []any{after.Retry, after.Lifetime})
	attempts, err = p.api.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	assert.Empty(t, attempts[len(attempts)-1].Output, "the context stays as it is")
	p.quiet("400")
}

// Of a task that waits for its children, only the priority and the lifetime can be changed.
func TestEditAParent(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "edited-parent", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "split", FanOut: &asyncflow.FanOut{Shards: 2}}}})
	require.NoError(t, err)
	task, err := p.api.Submit(t.Context(),
		client.NewTask{Type: "edited-parent", Context: client.JSON(`1`)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.See("It waits for its children.")
	p.Click("Edit")
	p.Run(`return field("Head start") && !field("Context") && !field("Run no") && !field("Retry")`)
	p.Fill("Head start", "45")
	p.Click("Edit")
	p.See("The task is changed")
	got, err := p.api.Get(t.Context(), task.ID)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.Priority{45}, got.Priority)
	p.quiet()
}

// A form stays when its task begins meanwhile, with what was typed: its change is refused, and what
// was typed can still be copied.
func TestEditTooLate(t *testing.T) {
	p := openPage(t, all...)
	p.makeType("edited-late")
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "edited-late",
		Context: client.JSON(`{"n":1}`), Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.Click("Edit")
	p.Fill("Context", `{"n":2}`)
	_, err = p.api.Change(t.Context(), task.ID,
		client.TaskPatch{RunAt: time.Now().Add(-time.Minute)})
	require.NoError(t, err)
	_, err = p.api.Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	p.See(task.ID + " succeeded")
	assert.Equal(t, `{"n":2}`, p.Value("Context"))
	p.Click("Edit")
	p.See("can't be changed: it has succeeded")
	assert.Equal(t, `{"n":2}`, p.Value("Context"))
	p.Click("Back")
	p.Run(`return !called("button", "Edit")`)
	p.quiet("409")
}

// A form that was opened in one stage changes nothing in the next one, that the task went on to
// meanwhile.
func TestEditOfAnotherStage(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "edited-on", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "first"}, {Name: "second"}}})
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body struct {
			Challenge string `json:"challenge,omitempty"`
		}
		_ = json.NewDecoder(r.Body).Decode(&body)
		_ = json.NewEncoder(w).Encode(body)
	}))
	defer server.Close()
	_, err = p.api.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "edited-on",
		Stage: "first", URL: server.URL})
	require.NoError(t, err)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "edited-on",
		Context: client.JSON(`{"n":1}`), Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.Click("Edit")
	p.Fill("Context", `{"n":2}`)
	_, err = p.api.Change(t.Context(), task.ID,
		client.TaskPatch{RunAt: time.Now().Add(-time.Minute)})
	require.NoError(t, err)
	p.See("It waits for an endpoint for its stage.") // the form stays
	p.Click("Edit")
	p.See("Somebody changed this meanwhile, or it has gone on.")
	p.Run(`return field("Context").value === '{"n":2}'`) // what was typed can still be copied
	got, err := p.api.Get(t.Context(), task.ID)
	require.NoError(t, err)
	assert.Equal(t, []string{"second", `{"n":1}`}, []string{got.Stage, string(got.Context)})
	attempts, err := p.api.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	for _, a := range attempts {
		assert.NotEqual(t, `{"n":2}`, string(a.Output))
	}
	p.quiet("412")
}

// A form overwrites nothing that somebody else changed since it was opened. Opened again, it shows
// the new context, and an emptied one stays as it is.
func TestEditAfterAnother(t *testing.T) {
	p := openPage(t, all...)
	_, err := p.api.PutTaskType(t.Context(), "edited-twice", client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(t, err)
	task, err := p.api.Submit(t.Context(), client.NewTask{Type: "edited-twice",
		Context: client.JSON(`{"n":1}`), Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	p.open("/console/tasks/" + task.ID)
	p.Click("Edit")
	p.Fill("Context", `{"n":2}`)
	_, err = p.api.Change(t.Context(), task.ID, client.TaskPatch{Context: client.JSON(`{"n":3}`)})
	require.NoError(t, err)
	p.Click("Edit")
	p.See("Somebody changed this meanwhile, or it has gone on.")
	p.Click("Back")
	p.See(`"n": 3`)
	p.Run(`return !where.matches("dialog")`)
	p.Click("Edit")
	p.Run(`return field("Context")?.value === '{"n":3}'`)
	p.Fill("Context", "")
	p.Fill("Head start", "60")
	p.Click("Edit")
	p.See("The task is changed")
	attempts, err := p.api.Attempts(t.Context(), task.ID)
	require.NoError(t, err)
	require.Len(t, attempts, 2)
	assert.Equal(t, `{"n":3}`, string(attempts[0].Output))
	assert.Empty(t, attempts[1].Output, "the context stays as it is")
	p.quiet("412")
}
