package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// exportSite is a node, and a warehouse with what exports of its tasks brought.
type exportSite struct {
	*testing.T
	node   *process
	db     *pgx.Conn
	state  string
	stored []client.Task // in their order
}

func newExportSite(t *testing.T) *exportSite {
	url := database(t)
	s := &exportSite{T: t, node: startNode(t, url), state: filepath.Join(t.TempDir(), "state")}
	var err error
	s.db, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { s.db.Close(context.Background()) })
	return s
}

// now returns the database's time.
func (s *exportSite) now() (now time.Time) {
	s.Helper()
	require.NoError(s, s.db.QueryRow(s.Context(), `SELECT clock_timestamp()`).Scan(&now))
	return now
}

// export exports the tasks that ended before the lag, and stores them. Its output breaks after so
// many bytes; 0: it doesn't break.
func (s *exportSite) export(lag time.Duration, broken int) error {
	s.Helper()
	var out bytes.Buffer
	g := &globals{stdout: &out, stderr: io.Discard, api: s.node.client(),
		tenant: testTenant}
	if broken > 0 {
		g.stdout = &brokenPipe{to: &out, left: broken}
	}
	c := tasksExportCmd{exportFlags: exportFlags{State: s.state, Lag: lag}}
	if err := c.runEnded(s.Context(), g, s.now()); err != nil {
		return err
	}
	s.store(out.String())
	return nil
}

// store takes the output of an export whole, and then lets the next one go on after it.
func (s *exportSite) store(lines string) {
	s.Helper()
	for line := range strings.Lines(lines) {
		var t client.Task
		require.NoError(s, json.Unmarshal([]byte(line), &t))
		s.stored = append(s.stored, t)
	}
	require.NoError(s, os.Rename(s.state+".next", s.state))
}

// explain ends the test with what is known of tasks that aren't stored.
func (s *exportSite) explain(c *client.Client, ids map[string]bool) {
	s.Helper()
	stored := s.byID()
	for id := range ids {
		if _, ok := stored[id]; !ok {
			task, err := c.Get(s.Context(), id)
			s.Log("missing:", id, task.Status, task.FinishedAt, err)
		}
	}
	state, err := os.ReadFile(s.state)
	s.Fatal("the state is", string(state), err)
}

// byID returns how each task ended last.
func (s *exportSite) byID() map[string]client.Task {
	all := map[string]client.Task{}
	for _, t := range s.stored {
		all[t.ID] = t
	}
	return all
}

// brokenPipe takes some bytes.
type brokenPipe struct {
	to   io.Writer
	left int
}

var errBroken = errors.New("the pipe is broken")

func (b *brokenPipe) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errBroken
	}
	return b.to.Write(p)
}

// Exports follow each other while tasks end, also tasks that were submitted long before, and some
// exports break. Each end is stored once, in the order of the ends, and a task that was redriven
// again with its last end.
func TestExportsHaveEachEndOnce(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	s := newExportSite(t)
	c := s.node.client()
	var failing = true
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		if failing && string(d.Context) == `"fails"` {
			rw.WriteHeader(http.StatusUnprocessableEntity)
		}
	})
	w.pipe(t, c, oneStage())
	const lag = 10 * time.Second // a slow machine's commits take no longer
	broken := 0
	export := func() {
		t.Helper()
		breaks := 0
		if broken < 3 {
			breaks = 100 // in the first line
		}
		if err := s.export(lag, breaks); err != nil {
			require.ErrorIs(t, err, errBroken)
			require.NoFileExists(t, s.state+".next")
			broken++
			require.NoError(t, s.export(lag, 0))
		}
	}
	ids := map[string]bool{}
	submit := func(n int, task client.NewTask) (last string) {
		tasks := make([]client.NewTask, n)
		for i := range tasks {
			tasks[i] = task
			tasks[i].Type = "pipe"
		}
		results, err := c.SubmitMany(t.Context(), tasks)
		require.NoError(t, err)
		for _, r := range results {
			require.NoError(t, r.Err)
			ids[r.Task.ID] = true
			last = r.Task.ID
		}
		return last
	}
	failed := submit(1, client.NewTask{Context: client.JSON(`"fails"`)})
	for i := range 20 {
		submit(5, client.NewTask{Context: client.JSON(`1`),
			Delay: client.NewDuration(time.Duration(i) * 600 * time.Millisecond)})
		submit(20, client.NewTask{Context: client.JSON(`2`)})
		export()
	}
	if !assert.Eventually(t, func() bool {
		export()
		return s.byID()[failed].Status == client.StatusFailed && len(s.byID()) == len(ids)
	}, patience, 250*time.Millisecond, "all are stored") {
		s.explain(c, ids)
	}
	failing = false
	_, err := c.Redrive(t.Context(), failed, "", nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		export()
		return s.byID()[failed].Status == client.StatusSucceeded
	}, patience, 250*time.Millisecond, "the second end is stored")
	for id := range s.byID() {
		assert.Contains(t, ids, id)
	}
	assert.Len(t, s.stored, len(ids)+1, "each end once")
	for i := 1; i < len(s.stored); i++ {
		assert.False(t, s.stored[i].FinishedAt.Before(s.stored[i-1].FinishedAt), "in their order")
	}
	assert.Positive(t, broken)
}

// A row that commits late bears an earlier time than rows which were exported: it is found as long
// as it commits within the lag.
func TestExportFindsALateCommit(t *testing.T) {
	t.Parallel()
	s := newExportSite(t)
	c := s.node.client()
	startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {}).pipe(t, c, oneStage())
	ids := submitMany(t, c, 3)
	awaitAll(t, c, ids)
	s.backdate(s.db, "20 minutes", ids[0], ids[1])
	late, err := pgx.Connect(t.Context(), s.db.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { late.Close(context.Background()) })
	tx, err := late.Begin(t.Context())
	require.NoError(t, err)
	s.backdate(tx, "4 minutes", ids[2])
	require.NoError(t, s.export(5*time.Minute, 0))
	assert.Len(t, s.stored, 2, "the third one's transaction is open")
	require.NoError(t, tx.Commit(t.Context()))
	for range 2 {
		require.NoError(t, s.export(0, 0))
		assert.Len(t, s.stored, 3)
	}
}

// A run that is killed while it writes is done again from the same place, by the same command. It
// writes contents if asked to, keeps to its filter, and says what there is to do.
func TestExportGoesOnAfterAKill(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	s := newExportSite(t)
	c := s.node.client()
	w := startWorker(t, func(rw http.ResponseWriter, _ *http.Request, d delivery) {
		answer(rw, 200, map[string]any{"output": map[string]any{"made of": d.Context}})
	})
	w.pipe(t, c, oneStage())
	ids := submitMany(t, c, 300)
	awaitAll(t, c, ids)
	s.backdate(s.db, "1 hour", ids...)
	command := []string{"tasks", "export", "--contents", "--state", s.state}
	env := map[string]string{"ASYNCFLOW_URL": s.node.url, "ASYNCFLOW_TOKEN": testToken(t)}

	killed := exec.Command(os.Args[0], command...)
	killed.Env = append(os.Environ(), beAsyncflow+"=1", "ASYNCFLOW_URL="+s.node.url,
		"ASYNCFLOW_TOKEN="+env["ASYNCFLOW_TOKEN"])
	out, err := killed.StdoutPipe() // with less room than the output needs
	require.NoError(t, err)
	require.NoError(t, killed.Start())
	_, err = io.ReadFull(out, make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, killed.Process.Kill())
	require.Error(t, killed.Wait())
	require.NoFileExists(t, s.state+".next")

	r := runCLI(t, env, command...)
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stderr, "300 tasks written; once they are stored: mv ")
	first, _, _ := strings.Cut(r.stdout, "\n")
	var line exportedTask
	require.NoError(t, json.Unmarshal([]byte(first), &line))
	assert.JSONEq(t, `{"made of": `+string(line.Context)+`}`, string(line.Result))
	require.Len(t, line.Attempts, 1)
	assert.JSONEq(t, string(line.Result), string(line.Attempts[0].Output))
	s.store(r.stdout)
	assert.Len(t, s.stored, 300)
	assert.Len(t, s.byID(), 300)

	r = runCLI(t, env, append(command, "--type", "pipe")...)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "another filter")
	r = runCLI(t, env, append(command, "--status", "waiting")...)
	assert.Equal(t, exitUsage, r.code)
	r = runCLI(t, env, append(command, "--format", "csv")...)
	assert.Equal(t, exitUsage, r.code)
	r = runCLI(t, env, command...)
	require.Zero(t, r.code, r.stderr)
	assert.Empty(t, r.stdout)
	s.store(r.stdout)

	require.Zero(t, tenants(t, s.db.Config().ConnString(), "create", "other").code)
	env["ASYNCFLOW_TOKEN"] = tokenOf(t, "other", auth.ScopeRead)
	require.Eventually(t, func() bool { // until the node knows the tenant
		return runCLI(t, env, "tasks", "list").code == 0
	}, patience, 100*time.Millisecond)
	r = runCLI(t, env, command...)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "is the state of an export of tenant acme at "+s.node.url+
		", and this one is of tenant other at "+s.node.url)
	env["ASYNCFLOW_TOKEN"] = testToken(t)
	env["ASYNCFLOW_URL"] = strings.Replace(s.node.url, "127.0.0.1", "localhost", 1)
	r = runCLI(t, env, command...)
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "this one is of tenant acme at "+env["ASYNCFLOW_URL"])
}

// Without the claim tenant, exactly so, nothing tells the exports of two tenants apart.
func TestExportStateNeedsTheTenant(t *testing.T) {
	t.Parallel()
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".x"
	}
	assert.Equal(t, "acme", tokenTenant(token(`{"tenant": "acme"}`)))
	for _, claims := range []string{`{}`, `{"Tenant": "acme"}`, `{"org": "acme"}`, `{"tenant": 1}`} {
		require.Empty(t, tokenTenant(token(claims)), claims)
	}
	e := exporter[client.Task]{exportFlags: exportFlags{State: filepath.Join(t.TempDir(), "state")},
		at: func(t client.Task) time.Time { return t.FinishedAt }}
	g := &globals{stderr: io.Discard}
	err := e.run(t.Context(), g, time.Now())
	require.ErrorContains(t, err, "--state needs a token that names its tenant")
}

// The lines that an export keeps are under no name, so a kill leaves nothing.
func TestSpoolHasNoName(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows keeps the names of open files")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	s, err := newSpool()
	require.NoError(t, err)
	defer s.close()
	for i := range 2000 {
		require.NoError(t, s.add(time.UnixMicro(int64(-i)), strings.Repeat("x", 100)))
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	n := 0
	require.NoError(t, drain(s, 64, func(lines []string) error {
		n += len(lines)
		return nil
	}))
	require.Equal(t, 2000, n)
}

// An export with contents keeps few tasks in memory, however many there are on a page.
func TestExportAsksForFewContentsAtOnce(t *testing.T) {
	t.Parallel()
	const tasks = 200
	var out lockedBuffer
	var most, asked int
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/tasks":
			all := make([]string, tasks)
			for i := range all {
				all[i] = fmt.Sprintf(`{"id": "a_%d", "type": "pipe", "status": "succeeded"}`, i)
			}
			fmt.Fprintf(rw, `{"data": [%s]}`, strings.Join(all, ","))
		case strings.HasSuffix(r.URL.Path, "/attempts"):
			_, _ = io.WriteString(rw, `{"data": []}`)
		default:
			out.mu.Lock()
			asked++
			most = max(most, asked-bytes.Count(out.text.Bytes(), []byte("\n")))
			out.mu.Unlock()
			_, _ = io.WriteString(rw, `{"type": "pipe", "status": "succeeded"}`)
		}
	}))
	t.Cleanup(server.Close)
	api, err := client.New(server.URL, "token")
	require.NoError(t, err)
	g := &globals{stdout: &out, stderr: io.Discard, api: api, tenant: testTenant}
	c := tasksExportCmd{Contents: true}
	require.NoError(t, c.Run(t.Context(), g))
	assert.Equal(t, tasks, asked)
	assert.LessOrEqual(t, most, exportCalls)
}

// lockedBuffer is a buffer for several goroutines.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// Audit entries are exported once each, oldest first.
func TestAuditExport(t *testing.T) {
	t.Parallel()
	s := newExportSite(t)
	c := s.node.client()
	spec := oneStage()
	var out bytes.Buffer
	g := &globals{stdout: &out, stderr: io.Discard, api: c, tenant: testTenant}
	for i := range 3 {
		spec.Stages[0].Timeout = asyncflow.NewDuration(time.Duration(i+1) * time.Second)
		_, err := c.PutTaskType(t.Context(), "pipe", spec)
		require.NoError(t, err)
		export := auditExportCmd{entryFlags: entryFlags{Action: "task_type.put"},
			exportFlags: exportFlags{State: s.state}}
		require.NoError(t, export.run(t.Context(), g, s.now()))
		require.NoError(t, os.Rename(s.state+".next", s.state))
	}
	var versions []string
	for line := range strings.Lines(out.String()) {
		var e client.AuditEntry
		require.NoError(t, json.Unmarshal([]byte(line), &e))
		versions = append(versions, fmt.Sprint(e.Detail["version"]))
	}
	assert.Equal(t, []string{"1", "2", "3"}, versions)
	env := map[string]string{"ASYNCFLOW_URL": s.node.url, "ASYNCFLOW_TOKEN": testToken(t)}
	state := filepath.Join(t.TempDir(), "all")
	r := runCLI(t, env, "audit", "export", "--state", state, "--lag", "0s")
	require.Zero(t, r.code, r.stderr)
	assert.Contains(t, r.stdout, `"action":"task_type.put"`)
	require.FileExists(t, state+".next")
	r = runCLI(t, env, "audit", "export", "--state", state)
	require.Zero(t, r.code, r.stderr)
	assert.Empty(t, r.stdout, "the lag")
	assert.Equal(t, exitUsage, runCLI(t, env, "audit", "export").code)
}

// executor runs a statement.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// backdate makes tasks end earlier.
func (s *exportSite) backdate(db executor, by string, ids ...string) {
	s.Helper()
	numbers := make([]int64, len(ids))
	for i, id := range ids {
		parsed, err := asyncflow.ParseTaskID(id)
		require.NoError(s, err)
		numbers[i] = parsed.Number
	}
	tag, err := db.Exec(s.Context(), fmt.Sprintf(`UPDATE tenant_%s.journal_1
		SET at = at - $2::text::interval WHERE id = ANY ($1)`, testTenant), numbers, by)
	require.NoError(s, err)
	require.EqualValues(s, len(ids), tag.RowsAffected())
}

// The scripts of docs/export.md store all tasks, in Elasticsearch and in a Postgres, and again what
// was not stored before.
func TestDocumentedExports(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	psql := postgresProgram(t, "psql")
	for _, program := range []string{"sh", "jq", "curl", "split"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is missing", program)
		}
	}
	s := newExportSite(t)
	c := s.node.client()
	startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {}).pipe(t, c, oneStage())
	ids := submitMany(t, c, 20)
	awaitAll(t, c, ids)
	s.backdate(s.db, "1 hour", ids...)
	index := map[string]client.Task{}
	full := true
	elastic := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d := json.NewDecoder(r.Body)
		for {
			var action struct {
				Index struct {
					ID string `json:"_id"`
				}
			}
			var task client.Task
			if err := d.Decode(&action); err != nil {
				break
			}
			if assert.NoError(t, d.Decode(&task)) {
				index[action.Index.ID] = task
			}
		}
		answer(w, 200, map[string]bool{"errors": full})
	}))
	t.Cleanup(elastic.Close)
	warehouse := pgtest.Database(t, nil)

	dir := t.TempDir()
	blocks := docsBlocks(t, "export.md")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "load.sql"),
		[]byte(blocks["-- load.sql"]), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "asyncflow"),
		fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec %s \"$@\"\n", beAsyncflow, os.Args[0]), 0o700))
	run := func(script string) error {
		require.NotEmpty(t, blocks[script])
		sh := exec.Command("sh", "-c", blocks[script])
		sh.Dir = dir
		sh.Env = append(os.Environ(), "ASYNCFLOW_URL="+s.node.url, "ELASTICSEARCH_URL="+elastic.URL,
			"ASYNCFLOW_TOKEN="+testToken(t), "WAREHOUSE_URL="+warehouse,
			"PATH="+dir+":"+filepath.Dir(psql)+":"+os.Getenv("PATH"))
		said, err := sh.CombinedOutput()
		t.Logf("%s: %v: %s", script, err, said)
		return err
	}
	require.Error(t, run("# to-elasticsearch"))
	require.NoFileExists(t, filepath.Join(dir, "export.state"))
	full = false
	require.NoError(t, run("# to-elasticsearch"))
	assert.Len(t, index, len(ids))
	assert.Equal(t, ids[0], index[ids[0]].ID)
	require.NoError(t, run("# to-elasticsearch"), "nothing is left")

	require.NoError(t, os.Remove(filepath.Join(dir, "export.state")))
	require.NoError(t, run("# to-warehouse"))
	require.NoError(t, os.Remove(filepath.Join(dir, "export.state")))
	require.NoError(t, run("# to-warehouse"), "again")
	db, err := pgx.Connect(t.Context(), warehouse)
	require.NoError(t, err)
	defer db.Close(context.Background())
	var n int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM tasks
		WHERE status = 'succeeded' AND finished_at < now() AND id = ANY ($1)`, ids).Scan(&n))
	assert.Equal(t, len(ids), n)
}

// docsBlocks returns the blocks of code of a page, by the beginnings of their first comments: up to
// a comma or a semicolon.
func docsBlocks(t *testing.T, page string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	blocks := map[string]string{}
	for _, m := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		if name := blockName.FindString(m[1]); name != "" {
			blocks[name] = m[1]
		}
	}
	return blocks
}

var (
	codeBlock = regexp.MustCompile("(?s)\n```[a-z]+\n(.*?)\n```")
	blockName = regexp.MustCompile(`(?m)^(#|--) [a-z.-]+`)
)

// postgresProgram returns the path of one of Postgres' programs, or skips the test.
func postgresProgram(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skipf("%s is missing", name)
	}
	return found[len(found)-1]
}
