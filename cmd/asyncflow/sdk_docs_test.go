package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/workercheck"
)

// documented is a worker in a page of the documentation.
type documented struct {
	language string // of its block
	code     string
	tools    []string // that it needs
}

var (
	workerBlocks = regexp.MustCompile("(?ms)^```(go|python|js|sh)\n(.*?)^```$")
	workerPort   = regexp.MustCompile(`\b900\d\b`)
)

// documentedWorkers returns the whole programs of the page.
func documentedWorkers(t *testing.T, name string) (all []documented) {
	page, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	tools := map[string][]string{"go": {"go"}, "python": {"python3"}, "js": {"node"},
		"sh": {"bash", "socat", "openssl", "jq", "curl"}}
	for _, m := range workerBlocks.FindAllStringSubmatch(string(page), -1) {
		if (m[1] == "sh") == strings.HasPrefix(m[2], "#!") && workerPort.MatchString(m[2]) {
			all = append(all, documented{m[1], m[2], tools[m[1]]})
		}
	}
	return all
}

// run starts the worker on a free port, and returns its URL.
func (d documented) run(t *testing.T) string {
	dir, address := t.TempDir(), freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	code := workerPort.ReplaceAllString(d.code, port)
	file := filepath.Join(dir, map[string]string{"go": "main.go", "python": "worker.py",
		"js": "worker.mjs", "sh": "worker.sh"}[d.language])
	require.NoError(t, os.WriteFile(file, []byte(code), 0o755))
	var cmd *exec.Cmd
	switch d.language {
	case "go":
		built := filepath.Join(dir, "worker")
		out, err := exec.CommandContext(t.Context(), "go", "build", "-o", built,
			file).CombinedOutput()
		require.NoError(t, err, string(out))
		cmd = exec.Command(built)
	case "python":
		cmd = exec.Command("python3", file)
	case "js":
		cmd = exec.Command("node", file)
	case "sh": // as its second line says
		cmd = exec.Command("bash", "-c",
			"exec "+strings.TrimPrefix(strings.Split(code, "\n")[1], "# "))
	}
	var said strings.Builder
	cmd.Dir, cmd.Stderr = dir, &said
	cmd.Env = append(os.Environ(), "WORKER_SECRET="+testWebhook)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with what it started
		cmd.Wait()
		if t.Failed() {
			t.Logf("the worker said:\n%s", said.String())
		}
	})
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err == nil
	}, patience, 20*time.Millisecond, "it listens")
	return "http://" + address
}

// Every worker in docs/workers.md does a task of a real server, and passes asyncflow verify.
func TestDocumentedWorkers(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	workers := documentedWorkers(t, "workers.md")
	languages := map[string]int{}
	for _, w := range workers {
		languages[w.language]++
	}
	require.Equal(t, map[string]int{"go": 2, "python": 2, "js": 2, "sh": 2}, languages)
	p := start(t, append(nodeEnv(database(t)), "ASYNCFLOW_VERIFY_ENDPOINTS=true"), "serve")
	var turn sync.Mutex // one endpoint at a time
	for i, w := range workers {
		t.Run(fmt.Sprint(w.language, i), func(t *testing.T) {
			t.Parallel()
			for _, tool := range w.tools {
				if _, err := exec.LookPath(tool); err != nil {
					t.Skipf("%s is not installed", tool)
				}
			}
			url := w.run(t)
			if strings.Contains(w.code, "wbufsize") { // it keeps connections
				answersInOneWrite(t, strings.TrimPrefix(url, "http://"))
			}
			doesATask(t, p.client(), url, &turn)
			report, err := workercheck.Run(t.Context(),
				workercheck.Config{URL: url, Type: "hello", Stage: "greet", Secret: testWebhook,
					Context: json.RawMessage(`{"name": "Ada"}`), Egress: asyncflow.Anywhere,
					Quiet: 2 * time.Second, ReportTime: 15 * time.Second, Watch: 5 * time.Second,
					Deadline: 30 * time.Second}, nil)
			require.NoError(t, err)
			for _, check := range report.Checks {
				assert.NotEqual(t, workercheck.Failed, check.Result, "%+v", check)
				if check.Name == "report again" && strings.Contains(w.code, "202") {
					assert.Equal(t, workercheck.Passed, check.Result, "%+v", check)
				}
			}
		})
	}
}

// doesATask makes a worker do a task of the type hello, when it is its turn.
func doesATask(t *testing.T, c *client.Client, url string, turn *sync.Mutex) {
	t.Helper()
	turn.Lock()
	defer turn.Unlock()
	_, err := c.PutTaskType(t.Context(), "hello",
		client.TaskTypeSpec{Stages: []client.Stage{stage("greet")}})
	require.NoError(t, err)
	e, err := c.CreateEndpoint(t.Context(), client.NewEndpoint{Type: "hello", Stage: "greet",
		URL: url, Secret: testWebhook})
	require.NoError(t, err)
	require.Equal(t, "verified", string(e.Verification), e.VerificationError)
	submitted, err := c.Submit(t.Context(), client.NewTask{Type: "hello",
		Context: client.JSON(`{"name": "Ada \u00e9 & co"}`)})
	require.NoError(t, err)
	task, outcomes := ended(t, c, submitted.ID)
	require.Equal(t, "greet done", outcomes, task.Error)
	require.Contains(t, string(task.Result), "Ada")
	require.NoError(t, c.DeleteEndpoint(t.Context(), e.ID))
}

// answersInOneWrite expects a whole answer in one read: the second of two writes may wait 40 ms for
// the first one's acknowledgement.
func answersInOneWrite(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	require.NoError(t, err)
	answer := make([]byte, 4096)
	n, err := c.Read(answer)
	require.NoError(t, err)
	require.Regexp(t, `(?s)^HTTP/1.1 401 .*\r\n\r\n\{.*\}$`, string(answer[:n]))
}

// The worker in docs/go.md takes a task through its two stages, and fails one for good.
func TestDocumentedGoWorker(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	workers := documentedWorkers(t, "go.md")
	require.Len(t, workers, 1)
	url, p := workers[0].run(t), sharedNode(t)
	runRecipe(t, devFile{URL: p.url, Token: p.token()}, strings.NewReplacer(
		"http://127.0.0.1:9000", url, "export WORKER_SECRET=",
		"export WORKER_SECRET="+testWebhook+" #",
	).Replace(documentedSetup(t, "go.md")))
	c := p.client()
	for doc, want := range map[string]string{`{"image": "harbour.jpg"}`: "inspect done, resize done",
		`{}`: "inspect rejected"} {
		t.Run(doc, func(t *testing.T) {
			submitted, err := c.Submit(t.Context(),
				client.NewTask{Type: "images", Context: client.JSON(doc)})
			require.NoError(t, err)
			task, outcomes := ended(t, c, submitted.ID)
			require.Equal(t, want, outcomes, task.Error)
		})
	}
}

// documentedSetup returns the commands of a page that create the task type of its worker.
func documentedSetup(t *testing.T, name string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/" + name)
	require.NoError(t, err)
	for _, m := range workerBlocks.FindAllStringSubmatch(string(page), -1) {
		if m[1] == "sh" && strings.Contains(m[2], "asyncflow types apply") {
			return m[2]
		}
	}
	require.Fail(t, "no block applies a type", name)
	return ""
}

// The workers without an SDK are as short as the document says.
func TestDocumentedWorkersAreShort(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/workers.md")
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(page), "\n## In thirty lines\n")
	require.True(t, ok)
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := workerBlocks.FindAllStringSubmatch(section, -1)
	require.Len(t, blocks, 4)
	for _, m := range blocks {
		code := regexp.MustCompile(`(?s)import \(.*?\n\)\n`).ReplaceAllString(m[2], "") // in Go
		lines := 0
		for line := range strings.Lines(code) {
			if strings.ContainsAny(line, "abcdefghijklmnopqrstuvwxyz") &&
				!strings.HasPrefix(line, "import ") && !strings.HasPrefix(line, "from ") {
				lines++
			}
		}
		assert.LessOrEqual(t, lines, 30, m[1])
	}
}
