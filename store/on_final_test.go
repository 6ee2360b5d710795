package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// single is a type with one stage and one attempt.
func single() asyncflow.TaskType {
	t := twoStages()
	t.Stages = t.Stages[:1]
	t.Stages[0].Retry.MaxAttempts = 1
	return t
}

// events returns the events of the notifications that were made, in their order.
func (b *bundle) events() (all []asyncflow.FinalEvent) {
	b.t.Helper()
	rows, err := b.db.Query(b.t.Context(), `SELECT t.context, t.options FROM (`+
		b.tables("task", "type, id, context, options")+`) t JOIN tenant_acme.notifications n
		ON n.target = t.type AND n.task = t.id ORDER BY t.id`)
	require.NoError(b.t, err)
	defer rows.Close()
	for rows.Next() {
		var doc string
		var o asyncflow.Options
		var e asyncflow.FinalEvent
		require.NoError(b.t, rows.Scan(&doc, &o))
		require.NoError(b.t, json.Unmarshal([]byte(doc), &e))
		require.Equal(b.t, asyncflow.Notification{Event: e.ID, Task: e.Data.ID,
			URL: "https://shop.example/ended"}, *o.Notification)
		require.Nil(b.t, o.OnFinal)
		all = append(all, e)
	}
	require.NoError(b.t, rows.Err())
	return all
}

func (b *bundle) end(t *store.Type, o asyncflow.Outcome) {
	b.t.Helper()
	l := b.leaseAll(t, 1)[0]
	require.NoError(b.t, b.settle(t, l, o).Err)
}

// The event says how the task ended. A redriven task ends anew: with another event.
func TestTheEventOfAnEnd(t *testing.T) { eachSet(t, testTheEventOfAnEnd) }

func testTheEventOfAnEnd(t *testing.T, b *bundle) {
	b.byHand()
	f := b.told()
	pipe := b.put(single())
	task := newTask(`{"n":1}`)
	task.Options.Labels = asyncflow.Labels{User: "ada", Tags: []string{"eu"},
		Metadata: map[string]string{"order": "4711"}}
	task.Options.Key = "k"
	task.Options.FlowKey = "flow"
	task.Options.OnFinal = f
	id := b.submit(task)[0].ID
	b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "never <&>"})
	require.Empty(t, b.events(), "another transaction makes it")
	b.followUp()
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeDone,
		Output: json.RawMessage(`{"total": 1e400}`)})
	b.followUp()
	got := b.events()
	require.Len(t, got, 2)
	for i := range got {
		require.WithinDuration(t, time.Now(), got[i].Timestamp, patience)
		require.True(t, got[i].Timestamp.Equal(got[i].Data.FinishedAt))
		require.False(t, got[i].Data.CreatedAt.After(got[i].Timestamp))
		got[i].Timestamp = time.Time{}
		got[i].Data.CreatedAt = time.Time{}
		got[i].Data.FinishedAt = time.Time{}
	}
	data := asyncflow.FinalTask{ID: id.String(), Type: "pipe", Key: "k", FlowKey: "flow",
		Labels: task.Options.Labels,
		Stage:  "first"}
	failed := data
	failed.Status = asyncflow.StatusFailed
	failed.Error = "never <&>"
	failed.Attempts = 1
	done := data
	done.Status = asyncflow.StatusSucceeded
	done.Result = json.RawMessage(`{"total": 1e400}`)
	done.Attempts = 2
	require.Equal(t, []asyncflow.FinalEvent{
		{ID: fmt.Sprintf("final-%s.1", id), Type: "task.failed", Data: failed},
		{ID: fmt.Sprintf("final-%s.3", id), Type: "task.succeeded", Data: done},
	}, got)
	require.Empty(t, b.wrongEnds())
	shown := b.task(id)
	require.Equal(t, f, shown.OnFinal)
	require.Len(t, shown.Notifications, 2)
	require.Equal(t, f.Target, shown.Notifications[0].Type)
	require.Greater(t, shown.Notifications[0].Number, shown.Notifications[1].Number)
	note := b.task(shown.Notifications[0])
	require.Nil(t, note.OnFinal)
	require.Equal(t, asyncflow.StatusPending, note.Status)
}

// A task's own on_final counts before its type's. on leaves ends out; a part of a task's work has
// no end of its own, and that of a notification is not told.
func TestWhichEndsAreTold(t *testing.T) {
	b := setup(t)
	b.byHand()
	spec := single()
	spec.OnFinal = b.told()
	spec.OnFinal.On = []asyncflow.Status{asyncflow.StatusFailed}
	pipe := b.put(spec)
	own := newTask(`2`)
	own.Options.OnFinal = shop()
	own.Options.OnFinal.On = []asyncflow.Status{asyncflow.StatusSucceeded}
	done := asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	failed := asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"}
	var want []string
	for _, c := range []struct {
		task asyncflow.NewTask
		o    asyncflow.Outcome
		told bool
	}{{newTask(`1`), done, false}, {newTask(`1`), failed, true}, {own, done, true},
		{own, failed, false}} {
		id := b.submit(c.task)[0].ID
		b.end(pipe, c.o)
		if c.told {
			want = append(want, id.String())
		}
	}
	id := b.submit(own)[0].ID
	_, err := b.Cancel(t.Context(), tenant, id, "no")
	require.NoError(t, err)
	b.followUp()
	var got []string
	for _, e := range b.events() {
		got = append(got, e.Data.ID)
	}
	require.Equal(t, want, got)
	require.JSONEq(t, `2`, string(b.events()[1].Data.Result), "without an output it is the context")

	target, err := b.Catalog.Type(tenant, spec.OnFinal.Target)
	require.NoError(t, err)
	for _, l := range b.leaseAll(target, 2) {
		require.NoError(t, b.settle(target, l, failed).Err)
	}
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.outbox`), "no notification is told")
}

// Results that are long together are told in several transactions.
func TestLongResultsAreToldOneByOne(t *testing.T) {
	b := setup(t)
	b.byHand()
	spec := single()
	spec.OnFinal = b.told()
	pipe := b.put(spec)
	long := json.RawMessage(`"` + strings.Repeat("x", 900<<10) + `"`)
	for range 3 {
		b.submit(newTask(`1`))
		b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: long})
	}
	for n := 1; n <= 2; n++ { // the second begins before the bound
		more, err := b.FollowUp(t.Context(), tenant)
		require.NoError(t, err)
		require.Equal(t, n == 1, more)
		require.Len(t, b.events(), []int{0, 2, 3}[n])
	}
	require.Empty(t, b.wrongEnds())
}

// An end waits for its deleted target. If it doesn't come again, the event is dropped.
func TestATargetThatIsDeleted(t *testing.T) {
	b := setup(t)
	b.byHand()
	f := b.told()
	pipe := b.put(single())
	task := newTask(`1`)
	task.Options.OnFinal = f
	b.submit(task, task)
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, f.Target, false))
	b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.followUp()
	require.Empty(t, b.events())
	require.Equal(t, 1, b.count(`SELECT count(*) FROM tenant_acme.outbox WHERE due > now()`))
	b.told()
	b.exec(`UPDATE tenant_acme.outbox SET due = '-infinity'`)
	b.followUp()
	require.Len(t, b.events(), 1)
	require.NoError(t, b.Catalog.RefreshTenant(t.Context(), tenant))
	target, err := b.Catalog.Type(tenant, f.Target)
	require.NoError(t, err)
	b.end(target, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, f.Target, false))
	b.end(pipe, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.exec(`UPDATE tenant_acme.journal_1 SET at = at - interval '2 h'`)
	b.followUp()
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.outbox`))
}

// Targets are kept for on_final, and their number in a tenant is bounded.
func TestTargetsAreBounded(t *testing.T) {
	b := setup(t)
	f := b.told()
	spec := single()
	spec.Name = asyncflow.TargetPrefix + "mine"
	_, _, err := b.PutTaskType(t.Context(), tenant, spec)
	require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), "%v", err)
	spec = asyncflow.NewTarget(f.Target, "")
	spec.Stages[0].Retry.MaxAttempts = 3
	changed, _, err := b.PutTaskType(t.Context(), tenant, spec)
	require.NoError(t, err, "its owner may change how often it is tried")
	require.Equal(t, []any{3, "https://shop.example"},
		[]any{changed.Stages[0].Retry.MaxAttempts, changed.Notifies})
	spec.Stages = append(spec.Stages, asyncflow.Stage{Name: "more"})
	_, _, err = b.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err), "%v", err)
	b.exec(`INSERT INTO tenant_acme.task_types (name, version, spec, table_set, from_pos,
		  created_at, updated_at)
		SELECT 'asyncflow-final-' || i, 1, spec, table_set, from_pos, now(), now()
		FROM tenant_acme.task_types, generate_series(2, 100) i WHERE name = '` + f.Target + `'`)
	other := asyncflow.OnFinal{URL: "https://other.example/"}
	_, err = b.CreateTarget(t.Context(), tenant, "https://other.example", asyncflow.Endpoint{
		ID: "00000000-0000-4000-8000-000000000001", Type: other.TargetOf(), URL: other.URL})
	require.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err), "%v", err)
	require.ErrorContains(t, err, "has 100 targets")
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.endpoints
		WHERE url = 'https://other.example/'`))
	created, err := b.CreateTarget(t.Context(), tenant, "https://shop.example",
		asyncflow.Endpoint{ID: "00000000-0000-4000-8000-000000000002", Type: f.Target, URL: f.URL})
	require.NoError(t, err)
	require.False(t, created)
}
