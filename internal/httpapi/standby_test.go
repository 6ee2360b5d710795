package httpapi_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// standbyCalls are calls that change something: method, path, and a body where there is one. {id}
// is a task that waits, {over} one that failed. {held} is a claimed task, another one in each call.
const standbyCalls = `
POST /v1/tasks {"type":"pipe","context":{}}
POST /v1/tasks {"type":"pipe","context":{},"key":"a"}
POST /v1/tasks {"type":"pipe","context":{},"depends_on":[{"task":"{id}"}]}
POST /v1/tasks/batch {"tasks":[{"type":"pipe","context":{}},{"type":"pipe","context":{},"key":"b"}]}
POST /v1/signals {"name":"approved","type":"waits","key":"later"}
POST /v1/tasks/{id}/cancel
POST /v1/tasks/{over}/redrive
POST /v1/tasks/cancel {"type":"judge"}
POST /v1/tasks/redrive {"type":"pipe"}
PUT /v1/task-types/other {"stages":[{"name":"only"}]}
POST /v1/claims {"type":"judge","stage":"look","claimer":"test","max":1}
POST /v1/callbacks/{held}/heartbeat
POST /v1/callbacks/{held}/heartbeat {"checkpoint":1}
POST /v1/callbacks/{held}/progress {"percent":1,"checkpoint":1}
POST /v1/callbacks/{held}/complete {"output":1}
POST /v1/callbacks/{held}/fail {"error":"no"}
POST /v1/claims/{held}/release`

// A call that waits for a standby, and is cancelled there, is answered that it may
// have made its change.
func TestCallsUnderACutWaitForTheStandby(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	url := pgtest.PreparedServer(t, prepare).URL("postgres")
	b := setupOn(t, func(c *store.Config) { c.URL = url }, func(*httpapi.Config) {})
	admin, err := pgxpool.New(t.Context(), url) // it doesn't wait
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	t.Cleanup(func() { pgtest.SetStandby(t, admin, "") }) // otherwise the node can't stop
	b.pipe()
	b.claimed()
	read[api.TaskType](b, 201, b.call(http.MethodPut, "/v1/task-types/waits", approvalSpec))
	over := b.failSecond()
	id := read[api.SubmittedTask](b, 201, b.call(http.MethodPost, "/v1/tasks",
		`{"type":"pipe","context":{},"delay":"1h"}`)).ID
	b.submitJudge(strings.Count(standbyCalls, "{held}") + 1)
	held := b.claim("anna", `,"max":6`)

	pgtest.SetStandby(t, admin, "nobody")
	fill := strings.NewReplacer("{id}", id, "{over}", over)
	var calling sync.WaitGroup
	answered := make(chan struct{})
	for call := range strings.Lines(strings.TrimSpace(fill.Replace(standbyCalls))) {
		method, rest, _ := strings.Cut(strings.TrimSpace(call), " ")
		path, body, _ := strings.Cut(rest, " ")
		token := b.token
		switch {
		case strings.Contains(path, "{held}"):
			token = held[0].Callback.Token
			path = strings.ReplaceAll(path, "{held}", held[0].TaskID)
			held = held[1:]
		case path == "/v1/claims":
			token = b.newToken("acme", auth.ScopeWork)
		}
		calling.Go(func() {
			a := b.callAs(token, method, path, body)
			if strings.HasSuffix(path, "/batch") { // each task gets its own answer
				// A task that found no writer in time was surely not accepted.
				for _, r := range read[api.SubmittedBatch](b, 201, a).Tasks {
					assert.Contains(t, []string{"uncertain", "unavailable"}, string(r.Error.Code),
						"%s", a.body)
				}
				return
			}
			assert.Equal(t, 503, a.status, "%s: %s", call, a.body)
			codes := []string{"uncertain"}
			if path == "/v1/tasks" { // as in a batch
				codes = append(codes, "unavailable")
			}
			assert.Contains(t, codes, string(a.problem.Code), "%s: %s", call, a.body)
		})
	}
	go func() {
		calling.Wait()
		close(answered)
	}()
	require.Eventually(t, func() bool {
		_, err := admin.Exec(t.Context(), `SELECT count(pg_cancel_backend(pid))
			FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND application_name = 'asyncflow'`)
		assert.NoError(t, err)
		select {
		case <-answered:
			return true
		default:
			return false
		}
	}, patience, 20*time.Millisecond)
}
