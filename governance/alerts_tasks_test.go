package governance_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

var about = asyncflow.Labels{User: "customer-17", Tags: []string{"eu"},
	Metadata: map[string]string{"order": "4711"},
	Trace:    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}

const aboutJSON = `"user":"customer-17","tags":["eu"],"metadata":{"order":"4711"},` +
	`"trace":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`

// submitAbout submits a task with labels and an idempotency key.
func (b *bundle) submitAbout(
	t *testing.T, typ, key string, more asyncflow.NewTask,
) asyncflow.TaskID {
	t.Helper()
	more.Type, more.Context = typ, json.RawMessage(`1`)
	more.Options.Labels, more.Options.Key = about, key
	if key != "" {
		more.KeyWindow = asyncflow.KeyFor(time.Hour)
	}
	r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{more})[0]
	require.NoError(t, r.Err)
	return r.ID
}

// An alert names the task that stands for it, with its key and its labels, also in its notice.
func TestAlertsNameTheirTask(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	failing := b.pipe(t, "failing")
	b.pipe(t, "old")
	b.pipe(t, "slow")
	_, _, err := b.PutTaskType(t.Context(), tenant, asyncflow.TaskType{Name: "claimed",
		Stages: []asyncflow.Stage{{Name: "only", Mode: asyncflow.ModeClaim}}}.WithDefaults())
	require.NoError(t, err)
	b.pipe(t, "dependent")
	minute := asyncflow.NewDuration(10 * time.Minute)
	b.putAlerts(t, tenant, asyncflow.AlertRules{FailedForGood: 1, FailedInTotal: 1,
		BacklogAge: minute, NoClaimers: minute, DependencyLate: minute, LongWait: minute})
	want := map[alertOf]asyncflow.TaskID{}
	failed := b.submitAbout(t, "failing", "f", asyncflow.NewTask{})
	b.settle(t, failing, b.admitted(t, failing), poisoned)
	want[alertOf{asyncflow.AlertFailedForGood, "failing"}] = failed
	want[alertOf{asyncflow.AlertFailedForGood, asyncflow.AllTypes}] = failed
	for kind, typ := range map[asyncflow.AlertKind]string{asyncflow.AlertBacklogAge: "old",
		asyncflow.AlertLongWait: "slow"} {
		want[alertOf{kind, typ}] = b.submitAbout(t, typ, "o", asyncflow.NewTask{})
	}
	claimed := b.submitAbout(t, "claimed", "", asyncflow.NewTask{})
	want[alertOf{asyncflow.AlertNoClaimers, "claimed/only"}] = claimed
	want[alertOf{asyncflow.AlertDependencyLate, "dependent"}] = b.submitAbout(t, "dependent", "d",
		asyncflow.NewTask{DependsOn: []asyncflow.Dependency{{Task: claimed}}})
	exec(t, url, `UPDATE tenant_acme.ready_1 SET order_time = order_time - interval '1 h',
		  since = since - interval '1 h'`)
	exec(t, url, `UPDATE tenant_acme.wait SET order_time = order_time - interval '1 h',
		  since = since - interval '1 h'`)
	for _, typ := range []string{"old", "slow", "claimed", "dependent"} {
		for range 3 { // newer ones
			more := asyncflow.NewTask{Type: typ, Context: json.RawMessage(`1`)}
			if typ == "dependent" {
				more.DependsOn = []asyncflow.Dependency{{Task: claimed}}
			}
			require.NoError(t, b.Submit(t.Context(), tenant, []asyncflow.NewTask{more})[0].Err)
		}
	}
	b.turn(t, url, tenant)
	for alert, id := range want {
		e := b.firing(t, alert.kind, alert.subject)
		require.NotNil(t, e.Detail, "%v", alert)
		require.NotNil(t, e.Detail.Task, "%v", alert)
		assert.Equal(t, id.String(), e.Detail.Task.ID, "%v", alert)
		assert.Equal(t, about, e.Detail.Task.Labels, "%v", alert)
		assert.Equal(t, id == claimed, e.Detail.Task.Key == "", "%v", alert)
		notice := string(e.Notice(tenant, asyncflow.AlertFiring))
		assert.Contains(t, notice, `"task":{"id":"`+id.String()+`","`, "%v", alert)
		assert.Contains(t, notice, aboutJSON, "%v", alert)
		assert.NotContains(t, string(e.Notice(tenant, asyncflow.AlertResolved)), "customer-17")
	}
}

type alertOf struct {
	kind    asyncflow.AlertKind
	subject string
}

// A blocked key comes with the key and the labels of the task that others wait for. A notice with
// the longest keys and labels keeps its bound.
func TestBlockedKeysHaveLabels(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.ordered(t, "pipe", asyncflow.FlowBlock)
	b.putAlerts(t, tenant,
		asyncflow.AlertRules{BlockedKey: asyncflow.NewDuration(30 * time.Minute)})
	long := func(i int) string { return fmt.Sprint(i) + strings.Repeat("\u0001", 254) }
	large := asyncflow.Labels{Metadata: map[string]string{}}
	for i := range 7 {
		large.Metadata[fmt.Sprintf("name-%d", i)] = strings.Repeat("v", 255)
	}
	for i := range asyncflow.MaxAlertKeys + 1 {
		for n := range 2 {
			o := asyncflow.Options{FlowKey: long(i), Key: long(10*n + i), Labels: large}
			r := b.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe",
				Context: json.RawMessage(`1`), KeyWindow: asyncflow.KeyFor(time.Hour),
				Options: o}})[0]
			require.NoError(t, r.Err)
		}
		b.settle(t, pipe, b.admitted(t, pipe), poisoned)
	}
	exec(t, url, longWaiting+`; UPDATE tenant_acme.flow_blocks SET since = since - interval '1 h'`)
	require.Equal(t, 1, b.turn(t, url, tenant))
	e := b.firing(t, asyncflow.AlertBlockedKey, "pipe")
	require.Len(t, e.Detail.Keys, asyncflow.MaxAlertKeys)
	for _, k := range e.Detail.Keys {
		assert.Equal(t, large, k.Labels)
		assert.Equal(t, k.Key, k.TaskKey, "the first of the key, which failed, has the same")
	}
	notice := e.Notice(tenant, asyncflow.AlertFiring)
	assert.Greater(t, len(notice), asyncflow.MaxNotice*3/4)
	assert.LessOrEqual(t, len(notice), asyncflow.MaxNotice)
}
