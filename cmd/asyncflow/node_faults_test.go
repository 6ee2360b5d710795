package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// Without NOTIFY, the node that didn't take the submits finds them by polling.
func TestTwoNodesWithoutNotify(t *testing.T) {
	t.Parallel()
	url := database(t)
	api := startNode(t, url, "--no-notify", "--roles=api")
	startNode(t, url, "--no-notify", "--poll=50ms", "--roles=api,dispatcher,governance")
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, api.client(), oneStage())
	awaitAll(t, api.client(), submitMany(t, api.client(), 50))
	assert.Len(t, w.deliveries(), 50)
}

// Nodes without the API verify no tokens, so they need no key.
func TestDispatcherNodeNeedsNoKey(t *testing.T) {
	t.Parallel()
	p := start(t, append(nodeEnv(database(t)), "ASYNCFLOW_JWT_SECRET=",
		"ASYNCFLOW_PUBLIC_URL=http://127.0.0.1:1"), "serve", "--roles=dispatcher,governance")
	require.Contains(t, p.said(), "asyncflow is ready")
	p.signal(syscall.SIGTERM)
	assert.Equal(t, 0, p.wait(), p.said())
}

// A frozen Postgres must block neither callers nor the end of a node for ever; when it goes on,
// so does the node.
func TestHungPostgres(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	pg := pgtest.Server(t, devpg.Config{})
	require.NoError(t, pg.EnsureDatabase(t.Context(), "asyncflow"))
	url := pg.URL("asyncflow")
	require.NoError(t, prepareDatabase(t.Context(), url))
	p := startNode(t, url, "--grace=1s")
	w := startWorker(t, func(http.ResponseWriter, *http.Request, delivery) {})
	w.pipe(t, p.client(), oneStage())
	awaitAll(t, p.client(), submitMany(t, p.client(), 10))
	var all []int
	defer func() { // in any case: otherwise it can't be stopped
		for _, pid := range all {
			syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	freeze := func(pid int) {
		all = append(all, pid)
		syscall.Kill(pid, syscall.SIGSTOP) // perhaps it ended
		awaitStopped(t, pid)
	}
	freeze(pg.PID()) // first of all: it starts no further process then
	for _, pid := range children(t, pg.PID()) {
		freeze(pid)
	}
	impatient, err := client.New(p.url, testToken(t), client.WithTimeout(patience),
		client.WithRetries(0))
	require.NoError(t, err)
	_, err = impatient.TaskTypes(context.Background())
	var answer *client.Error
	require.ErrorAs(t, err, &answer, "an answer, not a silence")
	assert.Equal(t, 503, answer.Status)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Error("the node doesn't end")
	}
}

// children returns the processes that a server started, each in a process group of its own.
func children(t *testing.T, pid int) (all []int) {
	t.Helper()
	out, err := exec.Command("pgrep", "-P", strconv.Itoa(pid)).Output()
	require.NoError(t, err)
	for _, field := range strings.Fields(string(out)) {
		child, err := strconv.Atoi(field)
		require.NoError(t, err)
		all = append(all, child)
	}
	return all
}

// Tokens can be signed elsewhere: the node knows only public keys.
func TestPublicKeys(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path,
			pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	publicDER, err := x509.MarshalPKIXPublicKey(public)
	publicFile := write("public.pem", "PUBLIC KEY", publicDER, err)
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	privateFile := write("private.pem", "PRIVATE KEY", privateDER, err)

	p := start(t, append(nodeEnv(database(t)), "ASYNCFLOW_JWT_SECRET=",
		"ASYNCFLOW_JWT_PUBLIC_KEYS_FILE="+publicFile), "serve")
	require.NotEmpty(t, p.url, p.said())
	token := runCLI(t, map[string]string{"ASYNCFLOW_JWT_PRIVATE_KEY_FILE": privateFile}, "token",
		"create", "--tenant", testTenant)
	require.Zero(t, token.code, token.stderr)
	c, err := client.New(p.url, strings.TrimSpace(token.stdout))
	require.NoError(t, err)
	_, err = c.TaskTypes(t.Context())
	require.NoError(t, err)
	_, err = p.client().TaskTypes(t.Context()) // signed with a secret: another kind of algorithm
	require.Equal(t, asyncflow.CodeUnauthenticated, asyncflow.CodeOf(err))
}
