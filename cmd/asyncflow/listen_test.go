package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	sdk "github.com/asyncflow/asyncflow/worker"
)

// cable is a TCP proxy that can be cut and led elsewhere.
type cable struct {
	net.Listener
	mu    sync.Mutex
	to    string // "": it is cut
	conns []net.Conn
	dead  []*atomic.Bool // of each pair of connections: it passes nothing on
}

func newCable(t *testing.T, to string) *cable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cable{Listener: listener, to: to}
	t.Cleanup(func() { c.Close(); c.lead("") })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go c.carry(in)
		}
	}()
	return c
}

func (c *cable) url() string { return "http://" + c.Addr().String() }

func (c *cable) carry(in net.Conn) {
	c.mu.Lock()
	to := c.to
	c.mu.Unlock()
	out, err := net.Dial("tcp", to)
	if err != nil {
		in.Close()
		return
	}
	c.mu.Lock()
	if c.to != to {
		in.Close()
		out.Close()
	}
	dead := &atomic.Bool{}
	c.conns, c.dead = append(c.conns, in, out), append(c.dead, dead)
	c.mu.Unlock()
	pass := func(to, from net.Conn) {
		io.Copy(passing{to, dead}, from)
		if !dead.Load() {
			to.Close()
		}
	}
	go pass(out, in)
	pass(in, out)
}

// passing is a side of a cable.
type passing struct {
	to   io.Writer
	dead *atomic.Bool
}

func (p passing) Write(b []byte) (int, error) {
	if p.dead.Load() {
		return len(b), nil
	}
	return p.to.Write(b)
}

// deaden makes the connections that are open pass nothing on, without closing them.
func (c *cable) deaden() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, dead := range c.dead {
		dead.Store(true)
	}
}

// lead cuts all connections, and leads new ones to another address.
func (c *cable) lead(to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
	for _, one := range c.conns {
		one.Close()
	}
	c.conns, c.dead = nil, nil
}

// terminal is asyncflow listen in a pseudo-terminal.
type terminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	pty    *os.File
	mu     sync.Mutex
	screen strings.Builder
	exited chan struct{}
}

// listenEnv is the environment of asyncflow listen on a machine of its own, for a node that it
// reaches at a URL.
func listenEnv(node *process, url string) map[string]string {
	node.t.Helper()
	token := tokenOf(node.t, node.tenant, auth.ScopeRead, auth.ScopeManage, auth.ScopeWork)
	return map[string]string{"ASYNCFLOW_URL": url, "ASYNCFLOW_TOKEN": token,
		"XDG_CONFIG_HOME": node.t.TempDir()}
}

func startTerminal(t *testing.T, env map[string]string, args ...string) *terminal {
	t.Helper()
	return startIn(t, env, append([]string{os.Args[0], "listen"}, args...)...)
}

// startIn starts a command in a pseudo-terminal.
func startIn(t *testing.T, env map[string]string, command ...string) *terminal {
	t.Helper()
	p := &terminal{t: t, cmd: exec.Command(command[0], command[1:]...), exited: make(chan struct{})}
	p.cmd.Env = []string{beAsyncflow + "=1", "PATH=" + os.Getenv("PATH"), "TERM=xterm"}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	var err error
	p.pty, err = pty.Start(p.cmd)
	require.NoError(t, err)
	go func() {
		for in := bufio.NewReader(p.pty); ; {
			b, err := in.ReadByte()
			if err != nil {
				break
			}
			p.mu.Lock()
			p.screen.WriteByte(b)
			p.mu.Unlock()
		}
		p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGCONT)
		p.cmd.Process.Kill()
		<-p.exited
		p.pty.Close()
		if t.Failed() {
			t.Logf("the terminal shows:\n%s", p.shows())
		}
	})
	return p
}

func (p *terminal) shows() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.String()
}

// await waits until the terminal shows a pattern, and returns its groups.
func (p *terminal) await(pattern string) []string {
	p.t.Helper()
	var found []string
	require.Eventually(p.t, func() bool {
		found = regexp.MustCompile(pattern).FindStringSubmatch(p.shows())
		return found != nil
	}, patience, 20*time.Millisecond, "the terminal shows %q", pattern)
	return found
}

// ends waits for the end of the program, and returns its exit code.
func (p *terminal) ends() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatal("asyncflow listen did not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *terminal) press(key string) {
	p.t.Helper()
	_, err := p.pty.WriteString(key)
	require.NoError(p.t, err)
}

// localWorker is a worker with the SDK that counts its tasks.
type localWorker struct {
	server *httptest.Server
	mu     sync.Mutex
	tasks  []int
}

func startLocalWorker(t *testing.T, secret string) *localWorker {
	t.Helper()
	w, err := sdk.New(sdk.Config{Keys: []string{secret}, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	l := &localWorker{}
	sdk.Handle(w, "pipe", "first", func(
		_ context.Context, task sdk.Task[counted],
	) (counted, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tasks = append(l.tasks, task.Context.N)
		return counted{2 * task.Context.N}, nil
	})
	l.server = httptest.NewServer(w)
	t.Cleanup(l.server.Close)
	return l
}

func (l *localWorker) did() []int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]int(nil), l.tasks...)
}

// listened returns a shared node behind a cable, with a task type without an endpoint.
func listened(t *testing.T) (node *process, wire *cable, env map[string]string) {
	t.Helper()
	node = sharedNode(t)
	wire, env = connected(node)
	return node, wire, env
}

// connected makes a task type without an endpoint, and puts a node behind a cable.
func connected(node *process) (wire *cable, env map[string]string) {
	node.t.Helper()
	_, err := node.client().PutTaskType(node.t.Context(), "pipe",
		client.TaskTypeSpec{Stages: []client.Stage{stage("first")}})
	require.NoError(node.t, err)
	wire = newCable(node.t, strings.TrimPrefix(node.url, "http://"))
	return wire, listenEnv(node, wire.url())
}

// Deliveries come to the worker as pushes would, and r repeats the last one.
func TestListen(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	printed := runCLI(t, env, "listen", "--print-secret")
	require.Zero(t, printed.code, printed.stderr)
	secret := strings.TrimSpace(printed.stdout)
	require.Regexp(t, `^whsec_\S+$`, secret)
	w := startLocalWorker(t, secret)
	p := startTerminal(t, env, "--forward", w.server.URL+"/hook")
	require.Equal(t, secret, p.await(`signing secret: (\S+)\r`)[1], "it is the same one")
	p.await(`listening to pipe.first`)
	id := submit(t, node.client(), `{"n": 3}`)
	task, outcomes := ended(t, node.client(), id)
	require.JSONEq(t, `{"n": 6}`, string(task.Result))
	require.Equal(t, "first done", outcomes)
	line := `pipe\.first  ` + regexp.QuoteMeta(id) + `  200  \S+s  \d+ B`
	p.await(line + `\r\n`)
	p.press("r")
	p.await(line + `  \(repeated\)\r\n`)
	require.Equal(t, []int{3, 3}, w.did())
	p.press("q")
	require.Zero(t, p.ends())

	info, err := os.Stat(filepath.Join(env["XDG_CONFIG_HOME"], "asyncflow", "listen.json"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	endpoints, err := node.client().Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	require.Len(t, endpoints, 1)
	require.True(t, endpoints[0].Listen)
	elsewhere := listenEnv(node, node.url)
	r := runCLI(t, elsewhere, "listen", "--print-secret")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "asyncflow endpoints rotate-secret "+endpoints[0].ID)
}

// An endpoint in use is never taken over.
func TestListenTakesNothingOver(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	e, err := node.client().CreateEndpoint(t.Context(), client.NewEndpoint{Type: "pipe",
		Stage: "first", URL: "https://w.example.com/x"})
	require.NoError(t, err)
	r := runCLI(t, env, "listen", "--forward", "http://localhost:1", "--type", "pipe")
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.stderr, "asyncflow endpoints update "+e.ID+" --weight 0")
	r = runCLI(t, env, "listen", "--forward", "http://localhost:1")
	require.Equal(t, exitNotFound, r.code)
	require.Contains(t, r.stderr, "  left alone: pipe.first. To listen to one, ")
	require.Equal(t, exitUsage, runCLI(t, env, "listen", "--forward", "localhost:3000").code)

	_, err = node.client().PutTaskType(t.Context(), "other",
		client.TaskTypeSpec{Stages: []client.Stage{stage("only")}})
	require.NoError(t, err)
	for _, refused := range []string{"pipe", "pip"} { // nothing is changed then
		r = runCLI(t, env, "listen", "--print-secret", "--type", "other", "--type", refused)
		require.NotEqual(t, exitOK, r.code)
		all, err := node.client().Endpoints(t.Context(), "other")
		require.NoError(t, err)
		require.Empty(t, all)
	}
	zero := 0
	_, err = node.client().UpdateEndpoint(t.Context(), e.ID, client.EndpointPatch{Weight: &zero})
	require.NoError(t, err)
	env["ASYNCFLOW_TOKEN"] = tokenOf(t, node.tenant, auth.ScopeRead, auth.ScopeWork)
	r = runCLI(t, env, "listen", "--print-secret")
	require.Equal(t, exitForbidden, r.code)
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	env["ASYNCFLOW_TOKEN"] = node.token()
	many := client.TaskTypeSpec{}
	for i := range 6 {
		many.Stages = append(many.Stages, stage(fmt.Sprint("s", i)))
		_, err = node.client().PutTaskType(t.Context(), "many", many)
		require.NoError(t, err)
		_, err = node.client().CreateEndpoint(t.Context(), client.NewEndpoint{Type: "many",
			Stage: fmt.Sprint("s", i), URL: "https://w.example.com/x"})
		require.NoError(t, err)
	}
	r = runCLI(t, env, "listen", "--print-secret")
	require.Equal(t, exitOK, r.code, r.stderr)
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), r.stderr)
	require.Contains(t, r.stderr,
		"  left alone: many.s0, many.s1, many.s2, many.s3, many.s4, 2 more. To listen to one, ")
	all, err := node.client().Endpoints(t.Context(), "other")
	require.NoError(t, err)
	require.Len(t, all, 1)
	r = runCLI(t, env, "endpoints", "get", all[0].ID)
	require.Regexp(t, `(?m)^deliveries +claimed by asyncflow listen$`, r.stdout)
	require.Equal(t, exitFailed, runCLI(t, env, "listen", "--print-secret", "--type=many").code)
}

// Without its endpoint the command ends, and the tasks go to another endpoint once there is one.
func TestListenEnds(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	c := node.client()
	_, err := c.PutTaskType(t.Context(), "other",
		client.TaskTypeSpec{Stages: []client.Stage{stage("only")}})
	require.NoError(t, err)
	w := startLocalWorker(t, testWebhook)
	p := startTerminal(t, env, "--forward", w.server.URL)
	p.await("listening to pipe.first")
	endpoints, err := c.Endpoints(t.Context(), "pipe")
	require.NoError(t, err)
	require.NoError(t, c.DeleteEndpoint(t.Context(), endpoints[0].ID))
	require.Equal(t, exitFailed, p.ends())
	p.await("asyncflow: listening to pipe.first: 409 conflict: .*" +
		"no (mode claim|endpoint for listening)")
	id := submit(t, c, `{"n": 1}`)
	require.Eventually(t, func() bool { // a dispatcher looks at it first
		task, err := c.Get(t.Context(), id)
		return err == nil && task.WaitsFor == "endpoint"
	}, patience, 10*time.Millisecond)
	_, err = c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "pipe", Stage: "first",
		URL: w.server.URL, Secret: testWebhook})
	require.NoError(t, err)
	task, _ := ended(t, c, id)
	require.Equal(t, client.StatusSucceeded, task.Status)
}

// Nothing is missed when the connection is cut, or the node is killed, and the gap is told.
func TestListenReconnects(t *testing.T) {
	t.Parallel()
	db := database(t)
	node := startNode(t, db)
	wire, env := connected(node)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	w := startLocalWorker(t, testWebhook)
	p := startTerminal(t, env, "--forward", w.server.URL)
	p.await("listening to pipe.first")
	c := node.client()
	_, outcomes := ended(t, c, submit(t, c, `{"n": 1}`))
	require.Equal(t, "first done", outcomes)

	wire.lead("")
	p.await(`the connection to asyncflow is lost`)
	id := submit(t, c, `{"n": 2}`)
	task, err := c.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "claimer", string(task.WaitsFor))
	wire.lead(strings.TrimPrefix(node.url, "http://"))
	p.await(`connected to asyncflow again after [\d.]+m?s`)
	_, outcomes = ended(t, c, id)
	// The node may claim it for the connection that was cut, before it notices, and release it.
	require.Regexp(t, `^(first released, )?first done$`, outcomes)

	node.kill()
	p.await(`(?s)lost.*again after.*lost`)
	node = startNode(t, db)
	c = node.client()
	id = submit(t, c, `{"n": 3}`)
	wire.lead(strings.TrimPrefix(node.url, "http://"))
	p.await(`(?s)again after.*again after`)
	_, outcomes = ended(t, c, id)
	require.Equal(t, "first done", outcomes)
	require.Equal(t, []int{1, 2, 3}, w.did())
}

// While the machine sleeps tasks wait, and come when it wakes: also when the claims that were made
// for it ran out.
func TestListenSleeps(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	node, _, env := listened(t)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	w := startLocalWorker(t, testWebhook)
	p := startTerminal(t, env, "--forward", w.server.URL)
	p.await("listening to pipe.first")
	c := node.client()
	ended(t, c, submit(t, c, `{"n": 1}`))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	awaitStopped(t, p.cmd.Process.Pid)
	ids := []string{submit(t, c, `{"n": 2}`), submit(t, c, `{"n": 3}`)}
	require.Eventually(t, func() bool { // the call that waits got it, and it goes back in line
		attempts, err := c.Attempts(t.Context(), ids[0])
		return err == nil && len(attempts) > 0 && attempts[0].Outcome == "released"
	}, patience, asleepTick)
	require.Equal(t, []int{1}, w.did())
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGCONT))
	p.await(`this machine slept for \d+s: tasks have waited`)
	for _, id := range ids {
		task, outcomes := ended(t, c, id)
		require.Equal(t, client.StatusSucceeded, task.Status)
		require.NotContains(t, outcomes, "lost", "no attempt was lost")
	}
	require.ElementsMatch(t, []int{1, 2, 3}, w.did())
}

// Without a worker tasks wait, and lose no attempt.
func TestListenWithoutAWorker(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	env["ASYNCFLOW_ENDPOINT_SECRET"] = testWebhook
	w := startLocalWorker(t, testWebhook)
	local := newCable(t, "")
	address := local.Addr().String()
	require.NoError(t, local.Close())
	p := startTerminal(t, env, "--forward", "http://"+address)
	p.await(`nothing listens at http://` + address + `: start your worker`)
	c := node.client()
	id := submit(t, c, `{"n": 1}`)
	again, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := &http.Server{Handler: w.server.Config.Handler}
	go server.Serve(again)
	p.await(address + ` answers again after`)
	_, outcomes := ended(t, c, id)
	require.Equal(t, "first done", outcomes)

	server.Close()
	id = submit(t, c, `{"n": 2}`)
	p.await(`(?s)answers again.*nothing listens`)
	again, err = net.Listen("tcp", address)
	require.NoError(t, err)
	server = &http.Server{Handler: w.server.Config.Handler}
	defer server.Close()
	go server.Serve(again)
	task, outcomes := ended(t, c, id)
	require.Equal(t, client.StatusSucceeded, task.Status)
	require.Regexp(t, `^(first released, )+first done$`, outcomes)
	attempts, err := c.Attempts(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 1, attempts[len(attempts)-1].Attempt, "no attempt was used up")
}

// A worker's answers count as those to pushes, and programs can read about them.
func TestListenAnswers(t *testing.T) {
	t.Parallel()
	node, _, env := listened(t)
	c := node.client()
	bodies := make(chan []byte, 10)
	w := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		bodies <- body
		var d struct {
			Context  struct{ Status, Size int }
			Callback sdk.Callback
		}
		assert.NoError(t, json.Unmarshal(body, &d))
		if d.Context.Status == http.StatusAccepted {
			go sdk.NewReporter(nil).Complete(context.Background(), d.Callback, counted{9})
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(d.Context.Status)
		switch {
		case d.Context.Size > 0:
			rw.Write(bytes.Repeat([]byte("x"), d.Context.Size))
		case d.Context.Status == http.StatusOK:
			io.WriteString(rw, `{"outcome": "fail", "error": "bad input"}`)
		}
	}))
	t.Cleanup(w.Close)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, write := io.Pipe()
	go func() {
		code := realMain(ctx, []string{"listen", "--forward", w.URL, "-o", "json"}, write,
			io.Discard, func(name string) (string, bool) { v, ok := env[name]; return v, ok })
		write.Close()
		assert.Zero(t, code)
	}()
	lines := json.NewDecoder(read)
	for doc, want := range map[string]struct {
		status asyncflow.Status
		why    string
	}{
		`{"status": 202}`: {asyncflow.StatusSucceeded, ""},
		`{"status": 200}`: {asyncflow.StatusFailed, "bad input"},
		`{"status": 503}`: {asyncflow.StatusFailed, "503 Service Unavailable"},

		`{"status": 200, "size": 2000000}`: {asyncflow.StatusFailed, "the limit is"},
		`{"status": 500, "size": 2000000}`: {asyncflow.StatusFailed,
			"500 Internal Server Error: xxx"},
	} {
		t.Run(doc, func(t *testing.T) {
			task, err := c.Submit(t.Context(), client.NewTask{Type: "pipe",
				Context: client.JSON(doc), Retry: asyncflow.RetryPolicy{MaxAttempts: 1}})
			require.NoError(t, err)
			var line forwarded
			require.NoError(t, lines.Decode(&line))
			done, _ := ended(t, c, task.ID)
			require.Equal(t, want.status, done.Status)
			require.Contains(t, done.Error, want.why)
			body := <-bodies
			require.Equal(t, []any{task.ID, "pipe", "first", len(body)},
				[]any{line.TaskID, line.Type, line.Stage, line.Size})
		})
	}
}
