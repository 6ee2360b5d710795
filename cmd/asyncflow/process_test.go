package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/browsertest"
	"github.com/asyncflow/asyncflow/internal/contracttest"
	"github.com/asyncflow/asyncflow/internal/openapi"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// With beAsyncflow in its environment, the test binary acts as asyncflow itself: tests start
// real processes and kill them.
const beAsyncflow = "ASYNCFLOW_TEST_PROCESS"

func TestMain(m *testing.M) {
	contracttest.Watch()
	if os.Getenv(beAsyncflow) == "" {
		pgtest.MoreAtOnce(8)
		code := browsertest.Main(m)
		endSharedNode()
		os.Exit(code)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(realMain(ctx, os.Args[1:], os.Stdout, os.Stderr, os.LookupEnv))
}

// patience bounds each wait for an event. It is long, since a slow machine is no fault, and
// costs nothing if the event comes.
const patience = 2 * time.Minute

const (
	testTenant    = "acme"
	testSecret    = "0123456789abcdef0123456789abcdef"
	testJWTSecret = "abcdef0123456789abcdef0123456789"
	testWebhook   = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// program is a running asyncflow.
type program struct {
	cmd    *exec.Cmd
	url    string        // of its API, once it is ready
	exited chan struct{} // closed at its end
	mu     sync.Mutex
	output strings.Builder // stderr so far
}

// process is a program that a test uses, as a tenant.
type process struct {
	*program
	t      *testing.T
	tenant string
}

// start starts asyncflow with arguments and an environment of its own.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startBy(t, env, append([]string{os.Args[0]}, args...)...)
}

// startBy starts a command that becomes asyncflow.
func startBy(t *testing.T, env []string, command ...string) *process {
	t.Helper()
	return startWithin(t, patience, env, command...)
}

// startWithin is startBy for a command that may take longer than others until it is ready.
func startWithin(
	t *testing.T, patience time.Duration, env []string, command ...string,
) *process {
	t.Helper()
	running, ready, err := launch(env, command...)
	require.NoError(t, err)
	p := &process{running, t, testTenant}
	t.Cleanup(func() {
		p.cmd.Process.Signal(syscall.SIGCONT)
		p.kill()
		p.tellEnd()
	})
	select {
	case p.url = <-ready:
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("asyncflow is not ready: %s", p.said())
	}
	return p
}

// tellEnd checks what the process said, and logs it if the test failed.
func (p *process) tellEnd() {
	assert.NotContains(p.t, p.said(), "WARNING: DATA RACE")
	if p.t.Failed() {
		p.t.Logf("process %d said:\n%s", p.cmd.Process.Pid, p.said())
	}
}

// launch starts a command that becomes asyncflow. It sends the address of the API once it is ready.
func launch(env []string, command ...string) (p *program, ready chan string, err error) {
	p = &program{cmd: exec.Command(command[0], command[1:]...), exited: make(chan struct{})}
	p.cmd.Env = append([]string{beAsyncflow + "=1", "PATH=" + os.Getenv("PATH"),
		"HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}, env...)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, nil, err
	}
	ready = make(chan string, 1)
	go p.read(stderr, ready)
	return p, ready, nil
}

// readyLine gives the address of the API, in logs of both formats.
var readyLine = regexp.MustCompile(
	`asyncflow is ready.*[ "](?:listen|url)(?:=|":")(?:http://)?([^\s"]+)`)

func (p *program) read(stderr io.Reader, ready chan string) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		p.mu.Lock()
		p.output.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
		if m := readyLine.FindStringSubmatch(lines.Text()); m != nil {
			ready <- "http://" + m[1]
		}
	}
	p.cmd.Wait()
	close(p.exited)
}

func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.output.String()
}

func (p *process) signal(s os.Signal) { require.NoError(p.t, p.cmd.Process.Signal(s)) }

// halt sends a signal that ends or stops the process, and waits until no thread of it runs.
func (p *process) halt(s syscall.Signal) {
	p.t.Helper()
	p.signal(s)
	if s != syscall.SIGSTOP {
		<-p.exited
		return
	}
	awaitStopped(p.t, p.cmd.Process.Pid)
}

// awaitStopped waits until no thread of a process runs that was sent SIGSTOP, or it is over.
func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	require.Eventually(t, func() bool {
		states, err := exec.Command("ps", "-L", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		if err != nil { // another ps: it shows only one state
			states, err = exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		}
		if err != nil {
			return syscall.Kill(pid, 0) == syscall.ESRCH
		}
		return !slices.ContainsFunc(strings.Fields(string(states)),
			func(state string) bool { return state[0] != 'T' && state[0] != 'Z' })
	}, patience, 20*time.Millisecond, "it stops")
}

// kill ends it at once, as a crash.
func (p *program) kill() {
	p.cmd.Process.Kill()
	<-p.exited
}

// wait waits for its end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.t.Fatalf("asyncflow did not end: %s", p.said())
	}
	return p.cmd.ProcessState.ExitCode()
}

// nodeEnv is the environment of a node on a database.
func nodeEnv(database string) []string {
	env := []string{"DATABASE_URL=" + database, "ASYNCFLOW_SECRET=" + testSecret,
		"ASYNCFLOW_JWT_SECRET=" + testJWTSecret,
		"ASYNCFLOW_LISTEN=127.0.0.1:0", "ASYNCFLOW_ALLOW_HTTP=1",
		"ASYNCFLOW_ALLOW_PRIVATE_NETWORKS=1",
		"ASYNCFLOW_VERIFY_ENDPOINTS=false", "ASYNCFLOW_DRAIN_DELAY=0s"}
	if pgtest.OnCitus() {
		env = append(env, "ASYNCFLOW_DATABASE_ROLES=off")
	}
	return env
}

// startNode starts asyncflow serve on a database.
func startNode(t *testing.T, database string, args ...string) *process {
	t.Helper()
	p := start(t, nodeEnv(database), append([]string{"serve"}, args...)...)
	require.NotEmpty(t, p.url, p.said())
	return p
}

// client returns a client of the tenant for the process' API.
func (p *process) client() *client.Client {
	p.t.Helper()
	c, err := client.New(p.url, p.token())
	require.NoError(p.t, err)
	return c
}

// token returns a token of the tenant, with the scopes of a caller.
func (p *process) token() string {
	p.t.Helper()
	return tokenOf(p.t, p.tenant)
}

func testToken(t *testing.T) string {
	t.Helper()
	return tokenOf(t, testTenant)
}

// tokenOf returns a token for a tenant; without scopes, one with those of a caller.
func tokenOf(t *testing.T, tenant string, scopes ...auth.Scope) string {
	t.Helper()
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(testJWTSecret)
	issuer, err := auth.NewIssuer(cfg)
	require.NoError(t, err)
	if len(scopes) == 0 {
		scopes = []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeOperate, auth.ScopeManage}
	}
	token, err := issuer.Issue(tenant, "test", scopes, time.Hour, time.Now())
	require.NoError(t, err)
	return token
}

func prepareDatabase(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url, store.WithoutRoles(pgtest.NoRoles())); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, testTenant, store.WithoutRoles(pgtest.NoRoles()))
	return err
}

// database returns the URL of a fresh database with the tenant in it.
func database(t *testing.T) string {
	t.Helper()
	return pgtest.Database(t, prepareDatabase)
}

// delivery is the body of a delivery.
type delivery struct {
	ID       string          `json:"task_id"`
	Stage    string          `json:"stage"`
	Attempt  int             `json:"attempt"`
	Seq      int             `json:"seq"`
	Context  json.RawMessage `json:"context"`
	Callback struct{ URL, Token string }
	Links    map[string]map[string]string
}

// worker is a worker's HTTP server that records its deliveries.
type worker struct {
	*httptest.Server
	mu     sync.Mutex
	ledger []delivery
}

// readSigned reads a signed request with a body of a schema of openapi.yaml into what to points to.
func readSigned(
	webhook *standardwebhooks.Webhook, r *http.Request, schema string, to any,
) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	if err := webhook.Verify(body, r.Header); err != nil {
		return err
	}
	if err := openapi.CheckJSON(schema, body); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	return json.Unmarshal(body, to)
}

// startWorker serves a handler; each delivery's signature is verified first.
func startWorker(
	t *testing.T, handle func(w http.ResponseWriter, r *http.Request, d delivery),
) *worker {
	t.Helper()
	webhook, err := standardwebhooks.NewWebhook(testWebhook)
	require.NoError(t, err)
	w := &worker{}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var d delivery
		if err := readSigned(webhook, r, "Delivery", &d); err != nil {
			t.Errorf("a bad delivery: %v", err)
			rw.WriteHeader(http.StatusBadRequest)
			return
		}
		w.mu.Lock()
		w.ledger = append(w.ledger, d)
		w.mu.Unlock()
		handle(rw, r, d)
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *worker) deliveries() []delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]delivery(nil), w.ledger...)
}

// pipe registers the worker for all stages of a task type.
func (w *worker) pipe(t *testing.T, c *client.Client, spec client.TaskTypeSpec) {
	t.Helper()
	_, err := c.PutTaskType(t.Context(), "pipe", spec)
	require.NoError(t, err)
	for _, stage := range spec.Stages {
		_, err := c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "pipe", Stage: stage.Name,
			URL: w.URL, Secret: testWebhook})
		require.NoError(t, err)
	}
}

var nodeField = regexp.MustCompile(`asyncflow is ready.* node=(\S+)`)

// node returns the name of the process as a node.
func (p *process) node(t *testing.T) string {
	t.Helper()
	m := nodeField.FindStringSubmatch(p.said())
	require.NotNil(t, m)
	return m[1]
}
