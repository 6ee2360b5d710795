package httpapi_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/internal/httpapi"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// quota gives the tenant quotas of its own.
func (b *bundle) quota(quotas string) {
	b.t.Helper()
	read[api.Tenant](b, 200, b.admin("PATCH", "/v1/tenants/acme", `{"quotas":`+quotas+`}`))
}

const oneTask = `{"type":"pipe","context":1}`

// Over the quota of pending tasks, no key brings in a new task: neither one that stood for a task
// until its end, nor one that the new task takes.
func TestKeysKeepTheQuota(t *testing.T) {
	b := setup(t)
	b.pipe()
	task := func(key, more string) answer {
		return b.call("POST", "/v1/tasks",
			`{"type":"pipe","context":1,"key":"`+key+`"`+more+`}`)
	}
	for key, window := range map[string]string{"until": `,"key_window":"until_final"`, "day": ``} {
		id := read[api.SubmittedTask](b, 201, task(key, window)).ID
		require.Equal(t, 200, b.call("POST", "/v1/tasks/"+id+"/cancel", "").status)
	}
	b.quota(`{"pending_tasks":1}`)
	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", oneTask))
	for key, more := range map[string]string{"until": ``, "day": `,"on_conflict":"cancel_running"`} {
		a := task(key, more)
		assert.Equal(t, 403, a.status, "%s: %s", key, a.body)
		assert.Equal(t, "quota_exceeded", a.problem.Code)
	}
	assert.Equal(t, 200, task("day", ``).status, "its task exists")
}

func TestQuotaOfTaskTypes(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.quota(`{"task_types":3}`)
	put := func(name, query string) answer {
		return b.call("PUT", "/v1/task-types/"+name+query, `{"stages":[{"name":"only"}]}`)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	release := b.hold(`SELECT FROM asyncflow.tenants WHERE slug = 'acme' FOR UPDATE`)
	for i := range 6 { // fewer than the connections that a tenant may use
		wg.Go(func() {
			a := put(fmt.Sprint("t", i), "")
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	require.Eventually(t, func() bool { // all of them are at the same point
		var waiting int
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM `+pgtest.Activity()+`
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting == 6
	}, patience, 20*time.Millisecond)
	release()
	wg.Wait()
	assert.Equal(t, map[int]int{201: 2, 403: 4}, statuses, "not one too many, at whatever moment")
	a := put("another", "?dry_run=true")
	assert.Equal(t, 403, a.status)
	assert.Equal(t, "quota_exceeded", a.problem.Code)
	assert.Equal(t, "the tenant's quota task_types is 3, and 3 are in use", a.problem.Detail)
	assert.Equal(t, api.ExceededQuota{Name: "task_types", Limit: 3, Used: 3}, a.problem.Quota)
	assert.Equal(t, 200, b.call("PUT", "/v1/task-types/pipe",
		`{"stages":[{"name":"first"},{"name":"second"},{"name":"third"}]}`).status,
		"those there are can be changed")
	assert.Contains(t, []int{200, 201},
		b.call("PUT", "/v1/alerts",
			`{"url":"https://alerts.example.com/x","rules":{"backlog_age":"5m"}}`).status,
		"alerts' own type doesn't count")
	b.quota(`{"task_types":-1}`)
	assert.Equal(t, 201, put("another", "").status)
}

// hold takes the locks of a statement until release is called.
func (b *bundle) hold(sql string) (release func()) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.dbURL)
	require.NoError(b.t, err)
	tx, err := conn.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), sql)
	require.NoError(b.t, err)
	return func() {
		require.NoError(b.t, tx.Rollback(b.t.Context()))
		require.NoError(b.t, conn.Close(b.t.Context()))
	}
}

func TestQuotaOfContexts(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.quota(`{"context_bytes":20}`)
	big := `"` + strings.Repeat("x", 30) + `"`
	failed := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", oneTask))
	require.Equal(t, 200, b.call("POST", "/v1/tasks/"+failed.ID+"/cancel", "").status)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/tasks", `{"type":"pipe","context":` + big + `}`},
		{"PUT", "/v1/schedules/nightly", `{"type":"pipe","context":` + big + `,"cron":"@daily"}`},
		{"POST", "/v1/tasks/" + failed.ID + "/redrive", `{"context":` + big + `}`},
	} {
		a := b.call(c.method, c.path, c.body)
		assert.Equal(t, []any{403, "quota_exceeded",
			"the tenant's quota context_bytes is 20, and the context is 32 bytes"},
			[]any{a.status, a.problem.Code, a.problem.Detail}, c.path)
		assert.Equal(t, api.ExceededQuota{Name: "context_bytes", Limit: 20, Used: 32},
			a.problem.Quota, c.path)
		assert.Equal(t, []asyncflow.FieldError{{Field: "context",
			Message: "is 32 bytes; the tenant's quota is 20"}}, a.problem.Errors, c.path)
		assert.Empty(t, a.header.Get("Retry-After"), "to wait doesn't help")
	}
	batch := read[api.SubmittedBatch](b, 201,
		b.call("POST", "/v1/tasks/batch",
			`{"tasks":[`+oneTask+`,{"type":"pipe","context":`+big+`}]}`))
	assert.Equal(t, []any{0, 403, asyncflow.QuotaName("context_bytes")},
		[]any{batch.Tasks[0].Error.Status, batch.Tasks[1].Error.Status,
			batch.Tasks[1].Error.Quota.Name})
	b.quota(`{"context_bytes":60000000}`)
	a := b.call("POST", "/v1/tasks", `{"type":"pipe","context":"`+strings.Repeat("x",
		maxContext)+`"}`)
	assert.Equal(t, []any{413, "too_large"}, []any{a.status, a.problem.Code},
		"the node's own limit stays")
}

func TestQuotaOfPendingTasks(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.quota(`{"pending_tasks":5}`)
	first := read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"a"}`))
	read[api.SubmittedTask](b, 201,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"delay":"1h"}`))
	batch := read[api.SubmittedBatch](b, 201, b.call("POST", "/v1/tasks/batch",
		`{"tasks":[`+oneTask+`,{"type":"pipe"},`+oneTask+`,`+oneTask+`,`+oneTask+`,{"type":"pipe","cont`+
			`ext":1,"key":"a"}]}`))
	var statuses []int
	for _, r := range batch.Tasks {
		statuses = append(statuses, r.Error.Status)
	}
	assert.Equal(t, []int{0, 400, 0, 0, 403, 0}, statuses,
		"the first ones that there is room for, and the one that is there already")
	assert.Equal(t, "quota_exceeded", batch.Tasks[4].Error.Code)
	assert.Equal(t, first.ID, batch.Tasks[5].Task.ID)
	a := b.call("POST", "/v1/tasks", oneTask)
	assert.Equal(t, []any{403, "quota_exceeded",
		"the tenant's quota pending_tasks is 5, and 5 are in use"},
		[]any{a.status, a.problem.Code, a.problem.Detail})
	assert.Equal(t, api.ExceededQuota{Name: "pending_tasks", Limit: 5, Used: 5}, a.problem.Quota)
	again := read[api.SubmittedTask](b, 200,
		b.call("POST", "/v1/tasks", `{"type":"pipe","context":1,"key":"a"}`))
	assert.Equal(t, []any{first.ID, true}, []any{again.ID, again.Existing},
		"a submit whose answer was lost can be repeated")
	assert.Equal(t, 403, b.call("POST", "/v1/tasks",
		`{"type":"pipe","context":1,"key":"b"}`).status)
	// a final task frees its place in the quota
	for _, task := range read[api.TaskList](b, 200, b.call("GET", "/v1/tasks?type=pipe", "")).Data {
		require.Equal(t, 200, b.call("POST", "/v1/tasks/"+task.ID+"/cancel", "").status)
	}
	require.Eventually(t, func() bool { return b.call("POST", "/v1/tasks", oneTask).status == 201 },
		patience, 10*time.Millisecond)
}

// Over the quota, a submit replaces the task with its key, however long the key stands for that. It
// makes no other task once that is final.
func TestReplaceOverQuotaOfPendingTasks(t *testing.T) {
	b := setup(t)
	b.pipe()
	const filler = `{"type":"pipe","context":1,"delay":"1h"}`
	for _, window := range []string{"1h", "until_final"} {
		t.Run(window, func(t *testing.T) {
			submit := func(context int) answer {
				return b.call("POST", "/v1/tasks", fmt.Sprintf(`{"type":"pipe","context":%d,
					"key":%q,"key_window":%q,"on_conflict":"replace","delay":"1h"}`, context,
					window, window))
			}
			b.quota(`{"pending_tasks":-1}`)
			first := read[api.SubmittedTask](b, 201, submit(1))
			b.quota(`{"pending_tasks":1}`)
			require.Equal(t, 403, b.call("POST", "/v1/tasks", filler).status)
			r := read[api.SubmittedTask](b, 200, submit(2))
			assert.Equal(t, []any{first.ID, true}, []any{r.ID, r.Replaced})
			b.quota(`{"pending_tasks":-1}`)
			for range 2 {
				require.Equal(t, 201, b.call("POST", "/v1/tasks", filler).status)
			}
			require.Equal(t, 200, b.call("POST", "/v1/tasks/"+first.ID+"/cancel", "").status)
			b.quota(`{"pending_tasks":1}`)
			for range 3 {
				a := submit(3)
				assert.Equal(t, []any{403, "quota_exceeded"}, []any{a.status, a.problem.Code})
			}
		})
	}
}

// Of many submits at once near the quota, exactly as many are accepted as it allows.
func TestPendingTasksAtOnce(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.quota(`{"pending_tasks":20}`)
	assert.Equal(t, map[int]int{201: 20, 403: 44}, submitAtOnce(b, 64))
	var live int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.ready_1`).Scan(&live))
	assert.Equal(t, 20, live)
}

// submitAtOnce submits n tasks at once, over several nodes, and counts the answers by
// status.
func submitAtOnce(b *bundle, n int, nodes ...string) map[int]int {
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range n {
		call := *b
		if len(nodes) > 0 {
			call.url = nodes[i%len(nodes)]
		}
		wg.Go(func() {
			a := call.call("POST", "/v1/tasks", oneTask)
			mu.Lock()
			defer mu.Unlock()
			statuses[a.status]++
		})
	}
	wg.Wait()
	return statuses
}

// node serves the API of the bundle's database on another node and returns its URL.
func (b *bundle) node(name string) string {
	b.t.Helper()
	s := pgtest.Insist(b.t, func() (*store.Store, error) {
		return store.Open(b.t.Context(), store.Config{URL: b.dbURL, Node: name, Roles: "api",
			NoRoles: pgtest.NoRoles(), Log: slog.New(slog.DiscardHandler)})
	})
	committer := dispatcher.NewCommitter(s, nil)
	ctx, cancel := context.WithCancel(context.Background())
	stored := make(chan error, 1)
	go func() { stored <- s.Run(ctx) }()
	server, err := httpapi.New(httpapi.Config{Store: s, Committer: committer,
		Verifier: b.verifier, Keys: b.keys, Version: "test", MaxContext: maxContext})
	require.NoError(b.t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	b.t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections() // the server would wait for them
		require.NoError(b.t, server.Shutdown(20*time.Second))
		require.NoError(b.t, <-served)
		committer.Close()
		cancel()
		require.NoError(b.t, <-stored)
		s.Close()
	})
	url := "http://" + l.Addr().String()
	require.Eventually(b.t, func() bool {
		return b.withURL(url).call("GET", "/readyz", "").status == 200
	},
		patience, 20*time.Millisecond)
	return url
}

// withURL returns the bundle with another node.
func (b *bundle) withURL(url string) *bundle {
	other := *b
	other.url = url
	return &other
}

// Two nodes may accept slightly more than the quota together while they can't know of each other's
// tasks; after that neither accepts any.
func TestPendingTasksOnTwoNodes(t *testing.T) {
	b := setup(t)
	b.pipe()
	b.quota(`{"pending_tasks":40}`)
	nodes := []string{b.node("one"), b.node("two")}
	b.twoNodes(nodes)
	statuses := submitAtOnce(b, 128, nodes...)
	t.Log(statuses)
	assert.Equal(t, 128, statuses[201]+statuses[403])
	assert.GreaterOrEqual(t, statuses[201], 30,
		"each node's share; its own may count twice for a moment")
	assert.LessOrEqual(t, statuses[201], 60)
	require.Eventually(t, func() bool {
		for _, url := range nodes { // the rest of the quota is for any caller
			for b.withURL(url).call("POST", "/v1/tasks", oneTask).status == 201 {
				statuses[201]++
			}
		}
		return statuses[201] >= 40
	}, patience, 20*time.Millisecond)
	assert.LessOrEqual(t, statuses[201], 60)
}

// twoNodes waits until both nodes know of each other.
func (b *bundle) twoNodes(urls []string) {
	b.t.Helper()
	b.quota(`{"submits_per_second":1000}`)
	for _, url := range urls {
		require.Eventually(b.t, func() bool {
			a := b.withURL(url).call("POST", "/v1/tasks", `{"type":"nothing","context":1}`)
			return a.header.Get("RateLimit-Policy") == `"submits";q=1000;w=2`
		}, patience, 50*time.Millisecond, "half of the rate is each one's share")
	}
	b.quota(`{"submits_per_second":0}`)
	for _, url := range urls {
		require.Eventually(b.t, func() bool {
			return b.withURL(url).call("POST", "/v1/tasks",
				`{"type":"nothing","context":1}`).header.Get("RateLimit") == ""
		}, patience, 50*time.Millisecond)
	}
}

// Over its rate, a tenant is told when to retry; other tenants are not affected.
func TestQuotaOfSubmits(t *testing.T) {
	b := setup(t)
	b.pipe()
	assert.Empty(t, b.call("POST", "/v1/tasks", oneTask).header.Get("RateLimit"), "without a quota")
	var answers []answer
	for { // until the machine is quick enough: while it is slow, there is room for another one
		b.quota(`{"submits_per_second":100000}`)
		b.call("POST", "/v1/tasks", oneTask) // at this rate the bucket is full again at once
		b.quota(`{"submits_per_second":2}`)
		begun := time.Now()
		answers = []answer{
			b.call("POST", "/v1/tasks", oneTask),
			b.call("POST", "/v1/tasks", `{"type":"pipe"}`),
			b.call("POST", "/v1/tasks/batch",
				`{"tasks":[`+strings.Repeat(oneTask+",", 9)+oneTask+`]}`),
			b.call("POST", "/v1/tasks/batch", `{"tasks":[`+oneTask+`,`+oneTask+`,`+oneTask+`]}`),
			b.call("POST", "/v1/tasks", oneTask),
		}
		if time.Since(begun) < time.Second/2 {
			break
		}
	}
	a := answers[0]
	assert.Equal(t, 201, a.status)
	assert.Equal(t, `"submits";q=4;w=2`, a.header.Get("RateLimit-Policy"))
	assert.Equal(t, `"submits";r=3;t=1`, a.header.Get("RateLimit"))
	assert.Equal(t, 400, answers[1].status, "what is refused anyway costs nothing")
	a = answers[2]
	assert.Equal(t, 429, a.status, "none of a batch is taken")
	assert.Equal(t, "rate_limited", a.problem.Code)
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	assert.Equal(t, 1, wait)
	assert.Contains(t, a.header.Get("RateLimit"), `"submits";r=3;`)
	assert.Equal(t, 201, answers[3].status)
	a = answers[4]
	assert.Equal(t, 429, a.status)
	assert.Equal(t, "the tenant's quota submits_per_second is 2; try again in 1 s",
		a.problem.Detail)
	assert.Equal(t, 200, b.call("GET", "/v1/task-types", "").status, "only submits count")
	time.Sleep(time.Duration(wait) * time.Second)
	assert.Equal(t, 201, b.call("POST", "/v1/tasks", oneTask).status, "as it was told")
}

// A triggered schedule counts as a submit, and is refused like one.
func TestQuotasOfTriggeredSchedules(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("PUT", "/v1/schedules/nightly",
		`{"type":"pipe","context":1,"cron":"@yearly"}`).status)
	b.quota(`{"submits_per_second":0.01,"pending_tasks":1}`)
	a := b.call("POST", "/v1/schedules/nightly/trigger", "")
	assert.Equal(t, []any{201, `"submits";q=1;w=100`},
		[]any{a.status, a.header.Get("RateLimit-Policy")})
	a = b.call("POST", "/v1/schedules/nightly/trigger", "")
	assert.Equal(t, []any{429, "rate_limited", `"submits";q=1;w=100`},
		[]any{a.status, a.problem.Code, a.header.Get("RateLimit-Policy")})
	assert.Contains(t, a.header.Get("RateLimit"), `"submits";r=0;t=`)
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	assert.InDelta(t, 90, wait, 10)
	b.quota(`{"submits_per_second":0}`)
	a = b.call("POST", "/v1/schedules/nightly/trigger", "")
	assert.Equal(t, []any{403, "quota_exceeded", asyncflow.QuotaName("pending_tasks")},
		[]any{a.status, a.problem.Code, a.problem.Quota.Name})
}

// Tasks over a quota of deliveries are accepted, and show that they wait for it.
func TestQuotasOfDeliveries(t *testing.T) {
	b := setup(t)
	b.pipe()
	require.Equal(t, 201, b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/x"}`).status)
	read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", oneTask))
	b.lease()
	for quotas, reason := range map[string]string{
		`{"concurrency":1,"deliveries_per_second":0}`:    "quota_concurrency",
		`{"concurrency":0,"deliveries_per_second":0.01}`: "quota_deliveries_per_second",
		`{"concurrency":0,"deliveries_per_second":0}`:    "capacity",
	} {
		b.quota(quotas)
		task := read[api.SubmittedTask](b, 201, b.call("POST", "/v1/tasks", oneTask))
		assert.Equal(t, reason, string(read[api.Task](b, 200,
			b.call("GET", "/v1/tasks/"+task.ID, "")).WaitsFor), quotas)
	}
}

// Two nodes together accept as many submits as the quota allows.
func TestSubmitsOnTwoNodes(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.pipe()
	nodes := []string{b.node("one"), b.node("two")}
	b.twoNodes(nodes)
	b.quota(`{"submits_per_second":20}`)
	for _, url := range nodes {
		require.Eventually(t, func() bool {
			return b.withURL(url).call("POST", "/v1/tasks",
				oneTask).header.Get("RateLimit-Policy") == `"submits";q=20;w=2`
		}, patience, 20*time.Millisecond)
	}
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	start, accepted, offered := time.Now(), 0, 0
	for time.Since(start) < time.Duration(longform.Size(2, 5))*time.Second {
		offered += 16
		accepted += submitAtOnce(b, 16, nodes...)[201]
		<-pace.C
	}
	took := time.Since(start).Seconds()
	most := 40 + 20*took // both bursts, and the rate
	t.Logf("%d in %.1f s, at most %.0f", accepted, took, most)
	assert.LessOrEqual(t, float64(accepted), most+1)
	assert.Greater(t, float64(accepted), 0.8*min(20*took, float64(offered)))
}

// The operator's quotas apply to a tenant without its own.
func TestDefaultQuotas(t *testing.T) {
	t.Parallel()
	b := setupOn(t, func(c *store.Config) {
		c.DefaultQuotas = asyncflow.Quotas{PendingTasks: 1, TaskTypes: 9}
	}, func(*httpapi.Config) {})
	b.pipe()
	assert.Equal(t, 201, b.call("POST", "/v1/tasks", oneTask).status)
	assert.Equal(t, 403, b.call("POST", "/v1/tasks", oneTask).status)
	quotas := read[api.QuotaList](b, 200, b.call("GET", "/v1/quota", "")).Data
	assert.Equal(t, []any{9.0, 1.0, false}, []any{quotas[0].Limit, quotas[1].Limit, quotas[1].Own})
	b.quota(`{"pending_tasks":-1}`)
	assert.Equal(t, 201, b.call("POST", "/v1/tasks", oneTask).status)
	b.quota(`{"pending_tasks":0}`)
	assert.Equal(t, 403, b.call("POST", "/v1/tasks", oneTask).status)
}

// The children of a task count like submits: the rate makes up for them later.
func TestQuotaOfSubmitsCountsChildren(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/fan", `{"stages":[{"name":"first","fan_out":{"items":"/all"}},
		{"name":"second","fan_out":{"shards":30}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	b.quota(`{"submits_per_second":0.01}`)
	task := `{"type":"fan","context":{"all":[1,2,3,4,5,6,7,8,9]}}`
	require.Equal(t, 201, b.call("POST", "/v1/tasks", task).status)
	a = b.call("POST", "/v1/tasks", task)
	require.Equal(t, 429, a.status)
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	assert.InDelta(t, 3600, wait, 200, "an hour at most")
}

// The children of a task that is refused are given back.
func TestQuotaOfSubmitsGivesBackChildren(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/fan", `{"stages":[{"name":"only","fan_out":{"shards":30}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	b.quota(`{"submits_per_second":0.01}`)
	a = b.call("POST", "/v1/tasks",
		`{"type":"fan","context":{},"depends_on":[{"task":"fan.1.4711"}]}`)
	require.Equal(t, 422, a.status)
	a = b.call("POST", "/v1/tasks", `{"type":"fan","context":{}}`)
	require.Equal(t, 429, a.status)
	wait, err := strconv.Atoi(a.header.Get("Retry-After"))
	require.NoError(t, err)
	assert.InDelta(t, 100, wait, 20, "for one task")
}

// What a tenant makes without a submit over HTTP is never refused; its next submits wait until the
// rate makes up for it.
func TestQuotaOfSubmitsCountsTicks(t *testing.T) {
	b := setup(t)
	a := b.call("PUT", "/v1/task-types/fan", `{"stages":[{"name":"only","fan_out":{"items":""}}]}`)
	require.Equal(t, 201, a.status, "%s", a.body)
	b.quota(`{"submits_per_second":0.01}`)
	nodes := []string{b.node("one"), b.node("two")}
	b.runStore()
	wait := func(url string) int {
		a := b.withURL(url).call("POST", "/v1/tasks", `{"type":"fan","context":[]}`)
		seconds, _ := strconv.Atoi(a.header.Get("Retry-After"))
		return seconds
	}
	for _, url := range nodes {
		require.Eventually(t, func() bool { return wait(url) > 100 }, patience, 20*time.Millisecond,
			"half of the rate is each one's share")
	}
	require.Equal(t, 201, b.call("PUT", "/v1/schedules/quick",
		`{"type":"fan","context":[1,2,3,4,5,6,7],"cron":"@yearly"}`).status)
	_, err := b.db.Exec(t.Context(),
		`UPDATE tenant_acme.schedules SET next_at = date_trunc('year', now(), 'UTC')`)
	require.NoError(t, err)
	ticked, err := b.store.TickSchedules(t.Context(), "acme", b.committer.Submit, nil)
	require.NoError(t, err)
	require.Equal(t, 1, ticked.Tasks)
	for _, url := range nodes {
		require.Eventually(t, func() bool { return wait(url) > 500 }, patience, 20*time.Millisecond,
			"8 tasks, at 0.01 a second")
		assert.Less(t, wait(url), 1200)
	}
	again, err := b.store.TickSchedules(t.Context(), "acme", b.committer.Submit, nil)
	require.NoError(t, err)
	assert.Zero(t, again.Tasks)
}

// runStore runs the background work of the bundle's store until the test ends.
func (b *bundle) runStore() {
	ctx, cancel := context.WithCancel(context.Background())
	stored := make(chan error, 1)
	go func() { stored <- b.store.Run(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		require.NoError(b.t, <-stored)
	})
}
