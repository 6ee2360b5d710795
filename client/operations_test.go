package client

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
)

func TestOperations(t *testing.T) {
	t.Parallel()
	var bodies []string
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		var doc struct {
			DryRun bool `json:"dry_run"`
		}
		if r.RequestURI == "/v1/operations" {
			writeJSON(w, 200, OperationList{Data: []Operation{{ID: "a"}, {ID: "b"}}})
			return
		}
		if len(raw) > 0 {
			bodies = append(bodies, string(raw))
			require.NoError(t, json.Unmarshal(raw, &doc))
		}
		if doc.DryRun {
			writeJSON(w, 200, api.Count{Count: 7})
			return
		}
		writeJSON(w, 202, Operation{ID: "a", State: OperationRunning})
	})
	c, ctx := f.client(t), t.Context()
	n, err := c.CountCancel(ctx, BulkCancellation{Type: "t", Status: "waiting"})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	n, err = c.CountRedrive(ctx, BulkRedrive{Type: "t", Error: "a<b"})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	o, err := c.CancelAll(ctx, BulkCancellation{Type: "t", DryRun: true})
	require.NoError(t, err)
	require.Equal(t, Operation{ID: "a", State: OperationRunning}, o)
	_, err = c.RedriveAll(ctx, BulkRedrive{Type: "t", DryRun: true, Pace: 0.5})
	require.NoError(t, err)
	n, err = c.CountPrioritize(ctx, BulkPriority{Type: "t", Priority: Priority{0}})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	_, err = c.PrioritizeAll(ctx, BulkPriority{Type: "t", Priority: Priority{1, 2}, DryRun: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"t","priority":0,"dry_run":true}`, bodies[4])
	require.JSONEq(t, `{"type":"t","priority":[1,2]}`, bodies[5])
	for i, want := range []string{`{"type":"t","status":"waiting","dry_run":true}`,
		`{"type":"t","error":"a<b","dry_run":true}`, `{"type":"t"}`, `{"type":"t","pace":0.5}`} {
		require.JSONEq(t, want, bodies[i])
	}
	o, err = c.CountAll(ctx, BulkCount{Type: "t", Status: StatusFailed, Error: "a<b"})
	require.NoError(t, err)
	require.Equal(t, "a", o.ID)
	require.JSONEq(t, `{"type":"t","status":"failed","error":"a<b"}`, bodies[6])
	atOnce, hour := NewDuration(0), NewDuration(time.Hour)
	n, err = c.CountDelay(ctx, BulkDelay{Type: "t", Delay: &atOnce})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	_, err = c.DelayAll(ctx, BulkDelay{AllTypes: true, Delay: &hour})
	require.NoError(t, err)
	n, err = c.CountRerun(ctx, BulkRerun{Type: "t", Status: "succeeded"})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	_, err = c.RerunAll(ctx, BulkRerun{Type: "t", Status: "failed", Pace: 5})
	require.NoError(t, err)
	for i, want := range []string{`{"type":"t","delay":"0s","dry_run":true}`,
		`{"all_types":true,"delay":"1h"}`, `{"type":"t","status":"succeeded","dry_run":true}`,
		`{"type":"t","status":"failed","pace":5}`} {
		require.JSONEq(t, want, bodies[7+i])
	}
	n, err = c.CountErase(ctx, BulkErasure{AllTypes: true, User: "ada"})
	require.NoError(t, err)
	require.EqualValues(t, 7, n)
	_, err = c.EraseAll(ctx, BulkErasure{AllTypes: true, User: "ada", Worker: "w", DryRun: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"all_types":true,"user":"ada","dry_run":true}`, bodies[11])
	require.JSONEq(t, `{"all_types":true,"user":"ada","worker":"w"}`, bodies[12])
	all, err := c.Operations(ctx)
	require.NoError(t, err)
	require.Len(t, all, 2)
	for _, do := range []func(string) (Operation, error){
		func(id string) (Operation, error) { return c.Operation(ctx, id) },
		func(id string) (Operation, error) { return c.StopOperation(ctx, id) },
	} {
		o, err = do("a")
		require.NoError(t, err)
		require.Equal(t, "a", o.ID)
		_, err = do("")
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	}
	_, err = c.List(ctx, ListParams{Type: "t", Stage: "s", Error: "100%"})
	require.NoError(t, err)
	require.Equal(t,
		[]string{"POST /v1/tasks/cancel", "POST /v1/tasks/redrive", "POST /v1/tasks/cancel",
			"POST /v1/tasks/redrive", "POST /v1/tasks/priority", "POST /v1/tasks/priority",
			"POST /v1/tasks/count",
			"POST /v1/tasks/delay", "POST /v1/tasks/delay", "POST /v1/tasks/rerun",
			"POST /v1/tasks/rerun", "POST /v1/tasks/erase", "POST /v1/tasks/erase",
			"GET /v1/operations", "GET /v1/operations/a",
			"POST /v1/operations/a/stop",
			"GET /v1/tasks?error=100%25&stage=s&type=t"}, f.requests())
}
