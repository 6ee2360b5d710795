package workercheck

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/openapi"
	"github.com/asyncflow/asyncflow/internal/signing"
	"github.com/asyncflow/asyncflow/worker"
)

type person struct {
	Name string `json:"name"`
}

// tryOut tries out a worker, and checks that the report is complete.
func tryOut(t *testing.T, cfg Config, handler http.Handler) Report {
	server := httptest.NewServer(handler)
	defer server.Close()
	defer server.CloseClientConnections()
	cfg.URL, cfg.Type, cfg.Stage = server.URL, "hello", "greet"
	cfg.Context, cfg.Egress = json.RawMessage(`{"name": "Ada"}`), asyncflow.Anywhere
	var told []Check
	report, err := Run(t.Context(), cfg, func(c Check) { told = append(told, c) })
	assert.NoError(t, err)
	assert.Equal(t, told, report.Checks)
	for _, c := range report.Checks {
		assert.NotEmpty(t, c.Detail, c.Name)
		assert.Equal(t, c.Result == Failed, c.Fix != "", c.Name)
	}
	assert.Len(t, named(report, Failed), report.Failed)
	assert.Len(t, named(report, Passed), report.Passed)
	return report
}

// named returns the names of the checks with a result.
func named(report Report, result Result) (names []string) {
	for _, c := range report.Checks {
		if c.Result == result {
			names = append(names, c.Name)
		}
	}
	return names
}

// sdkWorker returns a worker made with package worker.
func sdkWorker(
	t *testing.T, secret string, within time.Duration,
	work func(context.Context, worker.Task[person]) (person, error),
) http.Handler {
	signer, err := signing.NewSigner(secret)
	require.NoError(t, err)
	key := secret
	if signer.PublicKey() != "" {
		key = signer.PublicKey()
	}
	w, err := worker.New(worker.Config{Keys: []string{key}, AnswerWithin: within,
		Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a report that no check waits for any more is repeated until its deadline
		_ = w.Close(ctx)
	})
	worker.Handle(w, "hello", "greet", work)
	return w
}

func greet(_ context.Context, t worker.Task[person]) (person, error) { return t.Context, nil }

// A worker made with package worker passes every check. Each check applies to one of these workers.
func TestPackageWorkerPasses(t *testing.T) {
	t.Parallel()
	ed25519, err := signing.NewSecretOf(asyncflow.SecretEd25519)
	require.NoError(t, err)
	slow := func(ctx context.Context, task worker.Task[person]) (person, error) {
		if time.Until(task.Deadline) > 3*time.Second {
			return task.Context, nil
		}
		select {
		case <-time.After(1800 * time.Millisecond):
			return task.Context, nil
		case <-ctx.Done():
			return person{}, context.Cause(ctx)
		}
	}
	var workers sync.WaitGroup
	for name, c := range map[string]struct {
		secret string
		batch  int
		within time.Duration
		work   func(context.Context, worker.Task[person]) (person, error)
		other  []string // checks that don't apply
	}{
		"at once": {signing.NewSecret(), 0, time.Minute, greet,
			[]string{"batch", "report again", "attempt over", "heartbeats", "cancel"}},
		"ed25519": {ed25519, 0, time.Minute, greet,
			[]string{"batch", "report again", "attempt over", "heartbeats", "cancel"}},
		"batch": {signing.NewSecret(), 3, time.Minute, greet,
			[]string{"report again", "attempt over", "heartbeats", "cancel"}},
		"later":        {signing.NewSecret(), 0, -1, slow, []string{"batch"}},
		"batch, later": {signing.NewSecret(), 3, -1, slow, nil},
	} {
		handler := sdkWorker(t, c.secret, c.within, c.work)
		workers.Go(func() { // they mostly wait: more at once than there are cores
			report := tryOut(t,
				Config{Secret: c.secret, Batch: c.batch, Quiet: time.Second,
					Deadline: 3 * time.Second, ReportTime: 8 * time.Second, Watch: 4 * time.Second},
				handler)
			assert.Empty(t, named(report, Failed), "%s: %+v", name, report)
			assert.Equal(t, c.other, named(report, NotApplicable), "%s: %+v", name, report)
		})
	}
	workers.Wait()
}

// A worker with one fault fails the check of that fault, and no other check except the named ones.
func TestBadWorkers(t *testing.T) {
	t.Parallel()
	var workers sync.WaitGroup
	failed := map[string]bool{}
	for name, c := range badWorkers {
		for _, check := range c.fails {
			failed[check] = true
		}
		workers.Go(func() {
			b := c.worker
			b.t, b.secret = t, signing.NewSecret()
			report := tryOut(t,
				Config{Secret: b.secret, Batch: b.batch, Quiet: time.Second,
					Deadline: 2 * time.Second, ReportTime: 4 * time.Second,
					Timeout: 4 * time.Second}, b.handler())
			assert.Equal(t, c.fails, named(report, Failed), "%s: %+v", name, report)
		})
	}
	workers.Wait()
	for _, g := range groups {
		for _, c := range g.checks {
			assert.True(t, c.name == reached.name || failed[c.name], "no worker fails the check %q",
				c.name)
		}
	}
}

// A worker that puts the task off is told that the checks need a task that is ready.
func TestSnoozed(t *testing.T) {
	t.Parallel()
	later := func(context.Context, worker.Task[person]) (person, error) {
		return person{}, fmt.Errorf("no label yet: %w", worker.Snooze(time.Minute))
	}
	for within, want := range map[time.Duration]string{
		time.Minute: "it put the task off with snooze; ",
		-1:          "it accepted the delivery, and put the task off with snooze; ",
	} {
		t.Run(within.String(), func(t *testing.T) {
			t.Parallel()
			secret := signing.NewSecret()
			report := tryOut(t, Config{Secret: secret, Quiet: time.Second, ReportTime: time.Minute},
				sdkWorker(t, secret, within, later))
			for _, c := range report.Checks {
				if c.Name == "delivery" {
					require.Equal(t, Failed, c.Result)
					require.Equal(t, want+"give --context of a task that is ready: "+
						"no label yet: it isn't ready yet", c.Detail)
				}
			}
		})
	}
}

var aTask = asyncflow.SpawnedTask{Type: "part", Context: json.RawMessage(`{"n": 1}`)}

// The finding says how a worker lets the task go on and what it starts, and the checks accept it.
func TestChoices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		within time.Duration
		step   worker.Step
		want   string
	}{
		"at once": {time.Minute, worker.Next("review"), `^answered 200 in .*, with next_stage: "review"$`},
		"later":   {-1, worker.Finish, `^accepted, and reported as done, with finish: true$`},
		"tasks to start": {time.Minute, worker.Spawn(aTask, aTask),
			`^answered 200 in .*, with spawn of 2 tasks$`},
		"tasks to start later": {-1, worker.Spawn(aTask),
			`^accepted, and reported as done, with spawn of 1 tasks$`},
		"tasks to wait for": {time.Minute, worker.Next("review").Spawn(aTask, aTask).Join(),
			`^answered 200 in .*, with next_stage: "review", with spawn of 2 tasks and join$`},
		"tasks to wait for later": {-1, worker.Spawn(aTask).Join(worker.JoinOptions{MaxParallel: 1}),
			`^accepted, and reported as done, with spawn of 1 tasks and join$`},
		"no tasks to wait for": {-1, worker.Spawn().Join(), `^accepted, and reported as done$`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secret := signing.NewSecret()
			choose := func(_ context.Context, t worker.Task[person]) (person, error) {
				return t.Context, c.step
			}
			config := Config{Secret: secret, Quiet: time.Second, ReportTime: 8 * time.Second,
				Watch: 2 * time.Second}
			report := tryOut(t, config, sdkWorker(t, secret, c.within, choose))
			require.Empty(t, named(report, Failed), "%+v", report)
			require.Equal(t, "delivery", report.Checks[1].Name)
			require.Regexp(t, c.want, report.Checks[1].Detail)
		})
	}
}

// A worker gets the documents of the fields that only some stages ask for.
func TestFieldsOfStages(t *testing.T) {
	t.Parallel()
	secret := signing.NewSecret()
	var mu sync.Mutex
	got := map[string]int{}
	look := func(_ context.Context, task worker.Task[person]) (person, error) {
		mu.Lock()
		defer mu.Unlock()
		if saved := string(task.Checkpoint); saved != "" {
			got[saved]++
		}
		width, err := worker.Output[int](task, "inspect")
		if err != nil || width != 640 {
			return person{}, fmt.Errorf("width %d: %w", width, err)
		}
		input, err := worker.Input[person](task)
		if err != nil || input.Name != "Bob" {
			return person{}, fmt.Errorf("input %v: %w", input, err)
		}
		return task.Context, nil
	}
	report := tryOut(t, Config{Secret: secret, Quiet: time.Second, ReportTime: 8 * time.Second,
		Input:      json.RawMessage(`{"name": "Bob"}`),
		Outputs:    map[string]json.RawMessage{"inspect": json.RawMessage("640")},
		Checkpoint: json.RawMessage(`{"page":12}`)},
		sdkWorker(t, secret, time.Minute, look))
	require.Empty(t, named(report, Failed), "%+v", report)
	require.Equal(t, map[string]int{`{"page":12}`: 1}, got)
}

// Without a worker there is one thing to fix.
func TestNotReached(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	report, err := Run(t.Context(),
		Config{URL: server.URL, Type: "hello", Stage: "greet", Secret: signing.NewSecret(),
			Egress: asyncflow.Anywhere}, nil)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1}, []int{report.Passed, report.Failed})
	require.Equal(t, Failed, report.Checks[0].Result)
	require.Contains(t, report.Checks[0].Detail, "connection refused")
	for _, c := range report.Checks[1:] {
		require.Equal(t, NotApplicable, c.Result, c.Name)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := Config{URL: "http://127.0.0.1:1", Type: "hello", Stage: "greet",
		Secret: signing.NewSecret(), Egress: asyncflow.Anywhere}
	for want, change := range map[string]func(*Config){
		"url must be https": func(c *Config) {
			c.Egress = asyncflow.Egress{}
		},
		"type must":                     func(c *Config) { c.Type = "NO" },
		"stage is required":             func(c *Config) { c.Stage = "" },
		"secret must start with whsec_": func(c *Config) { c.Secret = "x" },
		"context is not": func(c *Config) {
			c.Context = json.RawMessage("{")
		},
		"batch.max_tasks is 1001; it must be":     func(c *Config) { c.Batch = 1001 },
		`callback_url is "host:9999"; it must be`: func(c *Config) { c.CallbackURL = "host:9999" },
		"reports can't be taken":                  func(c *Config) { c.Listen = "nowhere" },
		"input is not":                            func(c *Config) { c.Input = json.RawMessage("{") },
		"checkpoint is not":                       func(c *Config) { c.Checkpoint = json.RawMessage("{") },
		`outputs has "NO": must start`: func(c *Config) {
			c.Outputs = map[string]json.RawMessage{"NO": nil}
		},
		`links has "No": must start`: func(c *Config) {
			c.Links = map[string][]string{"review": {"No"}}
		},
		"outputs.inspect is not": func(c *Config) {
			c.Outputs = map[string]json.RawMessage{"inspect": json.RawMessage("{")}
		},
	} {
		t.Run(want, func(t *testing.T) {
			cfg := good
			change(&cfg)
			_, err := Run(t.Context(), cfg, nil)
			require.ErrorContains(t, err, want)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Run(ctx, good, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// The callback server refuses the same reports as a node.
func TestDeskRefuses(t *testing.T) {
	t.Parallel()
	r, err := newRehearsal(Config{URL: "http://127.0.0.1:1", Type: "hello", Stage: "greet",
		Secret: signing.NewSecret(), Egress: asyncflow.Anywhere,
		Context: json.RawMessage("1")}.withDefaults())
	require.NoError(t, err)
	t.Cleanup(r.callbacks.close)
	_, d := r.delivery(), r.delivery()
	a := r.callbacks.expect(d.Lease.ID, 1)
	token := tokenOf(t, r, d)
	for _, c := range []struct {
		path, token, media, body string
		status                   int
	}{
		{"hello.1.1/complete", token, "", "", 404},
		{"complete", "", "", "", 401},
		{"complete", "Bearer x", "", "", 401},
		{"complete", token, "text/plain", "{}", 400},
		{"complete", token, "application/json", `{"ouput": 1}`, 400},
		{"complete", token, "application/json",
			`{"output": "` + strings.Repeat("x", asyncflow.DefaultMaxContext) + `"}`, 413},
		{"complete", token, "application/json", `{"next_stage": "review", "finish": true}`, 400},
		{"complete", token, "application/json",
			`{"next_stage": "` + strings.Repeat("x", 101) + `"}`, 400},
		{"fail", token, "application/json", `{}`, 400},
		{"finish", token, "application/json", `{}`, 400},
		{"progress", token, "application/json", `{"percent": 1}`, 200},
		{"heartbeat", token, "", "", 200},
		{"complete", token, "application/json", `{"output": 1, "next_stage": "review"}`, 200},
		{"complete", token, "application/json", `{"output": 1, "next_stage": "review"}`, 200},
		{"complete", token, "application/json", `{"output": 1}`, 200},
		{"complete", token, "application/json", `{"output": 1, "next_stage": "render"}`, 409},
		{"complete", token, "application/json", `{"output": 1, "finish": true}`, 409},
		{"complete", token, "application/json", `{"output": 2}`, 409},
		{"complete", token, "application/json",
			`{"output": 1, "spawn": [{"type": "part", "context": 1}]}`, 409},
		{"complete", token, "application/json", `{"spawn": [{"type": "part"}]}`, 400},
		{"heartbeat", token, "", "", 409},
	} {
		t.Run(fmt.Sprintf("%s, %d", c.path, c.status), func(t *testing.T) {
			path := c.path
			if c.status != 404 {
				path = d.Lease.ID.String() + "/" + path
			}
			requireReport(t, r, path, c.token, c.media, c.body, c.status)
		})
	}
	last, ok := lastWord(a.seen())
	require.True(t, ok)
	require.Equal(t, "1", string(last.done.Output))
}

// requireReport sends a report to the callback server, and checks the status of its answer.
func requireReport(t *testing.T, r *rehearsal, path, token, media, doc string, status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "POST",
		r.callbacks.url+"/v1/callbacks/"+path, strings.NewReader(doc))
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	req.Header.Set("Content-Type", media)
	resp, err := ownClient.Do(req)
	require.NoError(t, err)
	body, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.Equal(t, status, resp.StatusCode, "%s: %s: %s", path, doc, body)
	if status >= 400 {
		require.NoError(t, openapi.CheckJSON("Problem", body), "%s", body)
		require.NotContains(t, string(body), `"code":""`)
		require.Contains(t, string(body), `"type":"about:blank"`)
	}
}

// The callback server takes reports of tasks to wait for as a node does.
func TestDeskTakesJoins(t *testing.T) {
	t.Parallel()
	r, err := newRehearsal(Config{URL: "http://127.0.0.1:1", Type: "hello", Stage: "greet",
		Secret: signing.NewSecret(), Egress: asyncflow.Anywhere,
		Context: json.RawMessage("1")}.withDefaults())
	require.NoError(t, err)
	t.Cleanup(r.callbacks.close)
	const part = `"spawn": [{"type": "part", "context": 1}], `
	for name, reports := range map[string][]struct {
		body   string
		status int
	}{
		"some": {
			{`{` + part + `"join": 1}`, 400},
			{`{` + part + `"join": {"max_parallel": -1}}`, 400},
			{`{"output": 1, ` + part + `"join": true}`, 400},
			{joinWithKey, 422},
			{`{"output": null, ` + part + `"join": true}`, 200},
			{`{` + part + `"join": {}}`, 200},
			{`{` + part + `"join": {"max_parallel": 2}}`, 409},
			{`{` + part + `"join": false}`, 409},
			{`{"join": true}`, 409},
		},
		"none": {
			{`{"join": true}`, 200},
			{`{"output": ` + string(asyncflow.NoResults) + `}`, 200},
			{`{"output": null}`, 409},
		},
		"null": {{`{"output": null}`, 200}, {`{}`, 200}},
	} {
		t.Run(name, func(t *testing.T) {
			d := r.delivery()
			r.callbacks.expect(d.Lease.ID, 1)
			for _, c := range reports {
				requireReport(t, r, d.Lease.ID.String()+"/complete", tokenOf(t, r, d),
					"application/json", c.body, c.status)
			}
		})
	}
}
