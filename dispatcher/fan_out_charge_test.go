package dispatcher_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// Children count in the rate of submits once: a submit over HTTP counts those that it knows, the
// dispatcher those that come from an output, or of a task submitted by SQL.
func TestChildrenThatNoSubmitCounted(t *testing.T) {
	b := setup(t)
	n := b.start("a", dispatcher.Config{}, echo)
	f := &family{node: n, b: b, t: t}
	f.quota(asyncflow.QuotaSubmitsPerSecond, 100)
	pipe, err := f.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	var last asyncflow.TaskID
	for _, test := range []struct {
		name          string
		first, second *asyncflow.FanOut
		bySQL         bool
		context       string
		counted       int64 // in all
	}{
		{"items of the first stage", &asyncflow.FanOut{Items: "/list"}, nil, false,
			`{"list":[1,2,3]}`, 0},
		{"items of an output", nil, &asyncflow.FanOut{Items: "/list"}, false,
			`{"list":[1,2,3,4]}`, 4},
		{"none", nil, &asyncflow.FanOut{Items: "/list"}, false, `{"list":[]}`, 4},
		{"shards of the second stage", nil, &asyncflow.FanOut{Shards: 5}, false, `{}`, 4},
		{"items by SQL", &asyncflow.FanOut{Items: "/list"}, nil, true, `{"list":[1,2]}`, 6},
		{"shards by SQL", nil, &asyncflow.FanOut{Shards: 6}, true, `{}`, 12},
		{"items beside results", &asyncflow.FanOut{Items: "/context/list"}, nil, false,
			`{"list":[1,2]}`, 14},
	} {
		changed := pipe.TaskType
		changed.Stages = []asyncflow.Stage{pipe.Stages[0], pipe.Stages[1]}
		changed.Stages[0].FanOut, changed.Stages[1].FanOut = test.first, test.second
		_, _, err := f.PutTaskType(t.Context(), tenant, changed)
		require.NoError(t, err)
		require.NoError(t, f.Catalog.RefreshTenant(t.Context(), tenant))
		var task store.Task
		switch {
		case test.bySQL:
			task = f.ended(b.submitBySQL(test.context))
		case test.name == "items beside results":
			task = f.ended(f.submitAfter(last, test.context))
		default:
			task = f.one(test.context)
		}
		last = task.ID
		require.Equal(t, asyncflow.StatusSucceeded, task.Status, "%s: %s", test.name, task.Error)
		require.Eventually(t, func() bool { return f.charged() == test.counted }, patience,
			20*time.Millisecond, test.name)
	}
}

// charged returns how many tasks of the tenant count as submitted that nobody submitted over HTTP.
func (f *family) charged() int64 {
	totals, err := f.SubmitCharges(f.t.Context())
	require.NoError(f.t, err)
	return totals[tenant]
}

// submitAfter submits a task whose first stage also gets the result of another one.
func (f *family) submitAfter(other asyncflow.TaskID, doc string) asyncflow.TaskID {
	got := f.Submit(f.t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe",
		Context: json.RawMessage(doc), DependsOn: []asyncflow.Dependency{{Task: other}},
		Options: asyncflow.Options{ContextFrom: asyncflow.ContextFromDependencies}}})[0]
	require.NoError(f.t, got.Err)
	return got.ID
}

func (b *bundle) submitBySQL(doc string) (id asyncflow.TaskID) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.url)
	require.NoError(b.t, err)
	var text string
	err = conn.QueryRow(b.t.Context(), `SELECT tenant_acme.submit_task('pipe', $1::text::json)`,
		doc).Scan(&text)
	require.NoError(b.t, err)
	require.NoError(b.t, conn.Close(b.t.Context()))
	id, err = asyncflow.ParseTaskID(text)
	require.NoError(b.t, err)
	return id
}
