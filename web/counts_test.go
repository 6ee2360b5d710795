package web_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
)

// delayedTasks makes a type, and n tasks of it that wait for an hour. Thousands belong into a
// tenant of its own: a search of another test would end before it comes to its task.
func (p *page) delayedTasks(name string, n int) {
	p.t.Helper()
	_, err := p.api.PutTaskType(p.t.Context(), name, client.TaskTypeSpec{
		Stages: []client.Stage{{Name: "only"}}})
	require.NoError(p.t, err)
	for ; n > 0; n -= 1000 {
		batch := make([]client.NewTask, min(n, 1000))
		for i := range batch {
			batch[i] = client.NewTask{Type: name, Context: client.JSON(`1`),
				Delay: client.NewDuration(time.Hour)}
		}
		_, err = p.api.SubmitMany(p.t.Context(), batch)
		require.NoError(p.t, err)
	}
}

// Beside the filter stands how many tasks match: exactly if they are few, else on request. The
// count of all stands among the operations, with its filter.
func TestCounts(t *testing.T) {
	p := openPageOf(t, "crowded")
	p.delayedTasks("crowd", 10_003)
	one, err := p.api.Submit(t.Context(), client.NewTask{Type: "crowd", Key: "one",
		Context: client.JSON(`1`), Delay: client.NewDuration(time.Hour)})
	require.NoError(t, err)
	_, err = p.api.Cancel(t.Context(), one.ID, "")
	require.NoError(t, err)
	p.open("/console/tasks?type=crowd&status=cancelled")
	p.See("1 task matches")
	assert.NotContains(t, p.Text(), "Count all")
	p.open("/console/tasks?type=crowd&status=failed")
	p.See("0 tasks match")
	p.open("/console/tasks?type=crowd&key=one")
	p.See("1 task matches")
	p.open("/console/tasks?type=crowd&text=1")
	p.See("Tasks with a text in contexts or outputs can't be counted.")
	p.open("/console/tasks?type=crowd&status=waiting")
	p.See("10,000+ tasks match")
	p.Click("Older")
	p.See("Newest")
	p.Click("Count all")
	p.See("10,003 tasks counted")
	assert.Empty(t, p.axe())
	p.Click("Newest")
	p.Gone("Newest")
	p.See("10,003 tasks counted")
	p.Fill("Status", "cancelled")
	p.See("1 task matches")
	p.Gone("10,003 tasks counted")
	_, err = p.api.CountAll(t.Context(), client.BulkCount{Type: "crowd",
		Status: client.StatusFailed})
	require.NoError(t, err)
	p.open("/console/operations")
	p.See("1 of 1, 0 counted")
	p.See("10,003 of 10,003, 10,003 counted")
	p.Run(`const e = [...document.querySelectorAll("tr")]
			.find(r => words(r).includes("10,003 counted"))
		?.querySelector("a"); e?.click(); return !!e`)
	p.See("Counted 10,003 tasks")
	p.See("Didn't match 0 tasks")
	p.Click("children false, status waiting")
	p.See("10,000+ tasks match")
	p.quiet()
}

// Who may only read sees the count, and nothing that would be refused.
func TestCountsReadOnly(t *testing.T) {
	p := openPageOf(t, "readers")
	p.delayedTasks("many-read", 10_001)
	token, err := p.node.TokenOf("readers", time.Hour, auth.ScopeRead)
	require.NoError(t, err)
	p.enter(token)
	p.open("/console/tasks?type=many-read")
	p.See("About 10,001 tasks match")
	assert.NotContains(t, p.Text(), "Count all")
	p.quiet()
}

// A count that takes long shows how far it is, and can be stopped.
func TestCountIsStopped(t *testing.T) {
	p := openPageOf(t, "counted")
	p.delayedTasks("long-count", 10_001)
	p.open("/console/tasks?type=long-count")
	p.See("About 10,001 tasks match")
	// Its first step is due in an hour.
	_, err := p.database().Exec(t.Context(), `
		CREATE FUNCTION public.later() RETURNS trigger LANGUAGE plpgsql AS
		  'BEGIN NEW.next_at = NEW.next_at + interval ''1 h''; RETURN NEW; END';
		CREATE TRIGGER later BEFORE INSERT ON tenant_counted.operations FOR EACH ROW
		  WHEN (NEW.type = 'long-count') EXECUTE FUNCTION public.later()`)
	require.NoError(t, err)
	p.Click("Count all")
	p.See("Counting: 0 tasks so far. 0 of about 10,001")
	p.Click("Stop")
	p.See("What it has done stays done.")
	p.Click("Stop")
	p.See("The count is stopped")
	p.See("Stopped at 0 tasks.")
	p.Click("Close")
	p.See("Count all")
	p.quiet()
}
