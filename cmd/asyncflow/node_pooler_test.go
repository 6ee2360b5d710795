package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// Through PgBouncer in session mode everything works, the migration included.
func TestNodeThroughASessionPooler(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t, nil)
	through := pgtest.PgBouncer{Mode: "session", Servers: 40}.Listen(t, direct)
	runAll(t, nodeEnv(through), "migrate up", "tenants create "+testTenant, "migrate status")
	p := startNode(t, through)
	everyKindOfWork(t, p)
	r := runCLI(t, map[string]string{"DATABASE_URL": through}, "doctor", "--all")
	assert.Contains(t, r.stdout, "a pooler in session mode stands before the server")
	assert.Regexp(t, `ok +notify`, r.stdout)
	requireNothingElsewhere(t, direct)
}

// Two nodes do every kind of work through PgBouncer in transaction mode, beside a direct
// connection. A pooled URL that leads to one in statement mode is refused.
func TestNodeThroughATransactionPooler(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for name, prepared := range map[string]int{"unprepared": 0, "prepared": 100} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := database(t)
			through := pgtest.PgBouncer{Mode: "transaction", Servers: 3, Prepared: prepared}.
				Listen(t, direct)
			p := startNode(t, direct, "--pooled-url", through)
			startNode(t, direct, "--pooled-url", through, "--pool=2", "--hot-pool=2")
			everyKindOfWork(t, p)
			requireNothingKept(t, through)
			requireNothingElsewhere(t, direct)
			r := runCLI(t, map[string]string{"DATABASE_URL": direct,
				"ASYNCFLOW_POOLED_URL": through}, "doctor", "--all")
			assert.Equal(t, prepared == 0, strings.Contains(r.stdout,
				"the pooler of pooled connections keeps no prepared statements"), r.stdout)
		})
	}
	t.Run("statement mode", func(t *testing.T) {
		t.Parallel()
		direct := database(t)
		through := pgtest.PgBouncer{Mode: "statement", Servers: 3}.Listen(t, direct)
		p := start(t, nodeEnv(direct), "serve", "--pooled-url", through)
		require.Equal(t, exitUnavailable, p.wait(), p.said())
		assert.Contains(t, p.said(), "statement pooling")
		r := runCLI(t, map[string]string{"DATABASE_URL": direct, "ASYNCFLOW_POOLED_URL": through},
			"doctor")
		assert.Contains(t, r.stdout, "problem  pooler")
		assert.Contains(t, r.stdout, "docs/providers.md#poolers")
	})
}

// A pooler in another mode is refused before anything is set or written, by each command, however
// few its clients. The error names the pooler and what would be lost.
func TestTransactionModeOfTheMainURL(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	for _, mode := range []string{"transaction", "statement"} {
		for _, servers := range []int{1, 3} {
			t.Run(fmt.Sprint(mode, " ", servers), func(t *testing.T) {
				t.Parallel()
				direct := pgtest.Database(t, nil)
				through := pgtest.PgBouncer{Mode: mode, Servers: servers}.Listen(t, direct)
				u, err := url.Parse(through)
				require.NoError(t, err)
				refused := func(args ...string) {
					t.Helper()
					p := start(t, nodeEnv(through), args...)
					require.Equal(t, exitUnavailable, p.wait(), p.said())
					for _, word := range []string{u.Host, "transaction mode", "search_path",
						"DATABASE_URL"} {
						require.Contains(t, p.said(), word)
					}
				}
				refused("migrate", "up")
				refused("serve", "--migrate")
				requireNothingElsewhere(t, direct)
				requireNoSchema(t, direct)
				requireNothingKept(t, through)

				runAll(t, nodeEnv(direct), "migrate up", "tenants create "+testTenant)
				refused("serve")
				refused("doctor")
				requireNothingKept(t, through)
			})
		}
	}
}

// everyKindOfWork does some of each kind of a node's work through its API.
func everyKindOfWork(t *testing.T, p *process) {
	t.Helper()
	c := p.client()
	w := startWorker(t, func(rw http.ResponseWriter, r *http.Request, d delivery) {
		var number int
		switch {
		case d.Stage == "reduce":
			answer(rw, 200, map[string]any{"output": "whole"})
		case json.Unmarshal(d.Context, &number) == nil && number == 3 && d.Attempt == 1:
			rw.WriteHeader(http.StatusServiceUnavailable) // one retry
		case json.Unmarshal(d.Context, &number) == nil && number == 4:
			rw.WriteHeader(http.StatusAccepted)
			go func() {
				assert.NoError(t, sdk.NewReporter(nil).Complete(context.WithoutCancel(r.Context()),
					sdk.Callback{URL: d.Callback.URL, Token: d.Callback.Token}, "later"))
			}()
		default:
			answer(rw, 200, map[string]any{"output": d.Context})
		}
	})
	w.pipe(t, c, oneStage())
	awaitAll(t, c, submitMany(t, c, 30))
	odd := client.JSON(`{"text":"ä\"'\\ \u0001","list":[1,null,[{}]]}`)
	task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: odd, Key: "once",
		User: "ada", Tags: []string{"eu", "fr"}, Metadata: map[string]string{"order": "4711"}})
	require.NoError(t, err)
	awaitAll(t, c, []string{task.ID})
	again, err := c.Submit(t.Context(), client.NewTask{Type: "pipe", Context: odd, Key: "once"})
	require.NoError(t, err)
	assert.Equal(t, task.ID, again.ID)
	done, err := c.Get(t.Context(), task.ID)
	require.NoError(t, err)
	assert.JSONEq(t, string(odd), string(done.Result))
	assert.Equal(t, []string{"eu", "fr"}, done.Tags)

	treeOfWork(t, p, w)
	claimedWork(t, p)
	consoleCalls(t, p)
}

// treeOfWork runs a task with children.
func treeOfWork(t *testing.T, p *process, w *worker) {
	t.Helper()
	c := p.client()
	run := clientOf(t, p)
	run(0, "types", "apply", "-f", writeFile(t, `
types:
  - name: tree
    stages:
      - {name: map, fan_out: {items: /items}}
      - {name: reduce}
`))
	for _, stage := range []string{"map", "reduce"} {
		_, err := c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "tree", Stage: stage,
			URL: w.URL, Secret: testWebhook})
		require.NoError(t, err)
	}
	task, err := c.Submit(t.Context(),
		client.NewTask{Type: "tree", Context: client.JSON(`{"items":[1,2,3,"x",{}]}`)})
	require.NoError(t, err)
	done, err := c.Wait(t.Context(), task.ID, patience)
	require.NoError(t, err)
	require.Equal(t, client.StatusSucceeded, done.Status, "%+v", done)
	assert.Equal(t, `"whole"`, string(done.Result))
}

// claimedWork makes a claimer do the tasks of a stage.
func claimedWork(t *testing.T, p *process) {
	t.Helper()
	clientOf(t, p)(0, "types", "apply", "-f", writeFile(t, `
types:
  - {name: claimed, stages: [{name: look, mode: claim, identity: unchecked}]}
`))
	c := p.client()
	claimer, err := client.New(p.url, tokenOf(t, testTenant, auth.ScopeWork))
	require.NoError(t, err)
	var ids []string
	for range 3 {
		task, err := c.Submit(t.Context(),
			client.NewTask{Type: "claimed", Context: client.JSON(`["a"]`)})
		require.NoError(t, err)
		ids = append(ids, task.ID)
	}
	reporter := sdk.NewReporter(nil)
	for range ids {
		all, err := claimer.Claim(t.Context(), client.ClaimRequest{Type: "claimed", Stage: "look",
			Claimer: "anna", Max: 1, Wait: client.NewDuration(time.Minute)})
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.NoError(t, reporter.Complete(t.Context(),
			sdk.Callback{URL: all[0].Callback.URL, Token: all[0].Callback.Token}, all[0].Context))
	}
	awaitAll(t, c, ids)
}

// consoleCalls logs in to the console and makes calls as its pages do.
func consoleCalls(t *testing.T, p *process) {
	t.Helper()
	var cookies []*http.Cookie
	call := func(method, path string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, nil)
		require.NoError(t, err)
		req.Header.Set("Sec-Fetch-Site", "same-origin")
		if len(cookies) == 0 {
			req.Header.Set("Authorization", "Bearer "+testToken(t))
		}
		for _, cookie := range cookies {
			req.Header.Add("Cookie", cookie.Name+"="+cookie.Value)
		}
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode, "%s: %s", path, body)
		if len(cookies) == 0 {
			cookies = resp.Cookies()
			require.NotEmpty(t, cookies)
		}
		return string(body)
	}
	call("POST", "/console/login")
	assert.Contains(t, call("GET", "/console"), "<html")
	assert.Contains(t, call("GET", "/console/session"), testTenant)
	for _, path := range []string{"/v1/task-types", "/v1/stats", "/v1/stats/history",
		"/v1/tasks?limit=10", "/v1/tasks?type=pipe&tags=eu", "/v1/endpoints?type=pipe",
		"/v1/tasks/count?type=pipe&user=ada"} {
		assert.Contains(t, call("GET", path), "{", path)
	}
	assert.Contains(t, call("GET", "/v1/tasks?type=pipe&status=succeeded&user=ada"), "4711")
}

// runAll runs commands that succeed, each as a process.
func runAll(t *testing.T, env []string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		p := start(t, env, strings.Fields(command)...)
		require.Equal(t, 0, p.wait(), p.said())
	}
}

func ask[T any](t *testing.T, url, sql string) (answer T) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, conn.QueryRow(t.Context(), sql, pgx.QueryExecModeSimpleProtocol).
		Scan(&answer))
	return answer
}

// requireNothingElsewhere says that the schema public is empty.
func requireNothingElsewhere(t *testing.T, url string) {
	t.Helper()
	require.Zero(t, ask[int](t, url,
		`SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace`))
}

func requireNoSchema(t *testing.T, url string) {
	t.Helper()
	require.Zero(t, ask[int](t, url, `SELECT count(*) FROM pg_namespace
		WHERE nspname = 'asyncflow' OR nspname LIKE 'tenant%'`))
}

// requireNothingKept says that no connection of a pooler to the server keeps a role or a setting of
// an earlier client. PgBouncer itself sets some that it knows.
func requireNothingKept(t *testing.T, through string) {
	t.Helper()
	for range 5 { // the connections take turns
		kept := ask[string](t, through, `SELECT coalesce(string_agg(name, ' '), '') FROM pg_settings
			WHERE source = 'session' AND name NOT IN ('client_encoding', 'DateStyle', 'TimeZone',
			  'IntervalStyle', 'standard_conforming_strings', 'application_name')`)
		require.Empty(t, kept)
		require.True(t, ask[bool](t, through, `SELECT current_user = session_user`))
	}
}
