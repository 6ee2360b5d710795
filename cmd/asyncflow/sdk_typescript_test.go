package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/internal/workercheck"
)

const typescript = "../../sdk/typescript"

// The TypeScript package works with a real server: this runs its own tests with Node, the
// programs in its documents, and asyncflow verify.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	needsNode(t)
	// read by this process, or go test would use a cached result
	for _, dir := range []string{"src", "test"} {
		_, err := os.ReadDir(filepath.Join(typescript, dir))
		require.NoError(t, err)
	}
	runNPM(t, nil, "run", "--silent", "build")
	// The build checked all declarations but its own, which the long form checks.
	runNPM(t, nil, "run", "--silent", "build:test", "--", "--skipLibCheck",
		strconv.FormatBool(!longform.Asked()))
	dir := pgtest.Dir(t)
	p := start(t, nil, "dev", "--addr=127.0.0.1:0", "--data="+dir, "--no-samples")
	f := readDevFile(t, dir)
	binary, err := os.Executable()
	require.NoError(t, err)
	env := []string{"ASYNCFLOW_URL=" + p.url, "ASYNCFLOW_TOKEN=" + f.Token,
		"ASYNCFLOW_BINARY=" + binary, beAsyncflow + "=1",
		// of what the tests start
		"ASYNCFLOW_NODE_ENV=" + strings.Join(nodeEnv(database(t)), "\n"),
		"ASYNCFLOW_NODE_TOKEN=" + testToken(t)}
	out := runNPM(t, env, "test", "--silent")
	require.Contains(t, out, "\n# fail 0\n")
	require.Contains(t, out, "\n# skipped 0\n")
	reportsWell(t)
}

// reportsWell runs the checks of asyncflow verify on a worker that answers 202.
func reportsWell(t *testing.T) {
	cmd := exec.Command("node", "dist/test/reporting.js")
	cmd.Dir = typescript
	cmd.Env = append(os.Environ(), "WORKER_SECRET="+testWebhook)
	_, err := cmd.StdinPipe() // closed when this process ends
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	report, err := workercheck.Run(t.Context(),
		workercheck.Config{URL: strings.TrimSpace(url), Type: "pipe", Stage: "first",
			Secret:     testWebhook,
			ReportTime: 30 * time.Second, Watch: 6 * time.Second, Quiet: 3 * time.Second,
			Deadline: 15 * time.Second, Egress: asyncflow.Anywhere}, nil)
	require.NoError(t, err)
	for _, check := range report.Checks {
		if check.Name != "batch" { // not asked for
			assert.Equal(t, workercheck.Passed, check.Result, "%+v", check)
		}
	}
}

// needsNode skips the test without Node or the package's build tools.
func needsNode(t *testing.T) {
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	major, _ := strconv.Atoi(strings.Split(strings.TrimPrefix(string(version), "v"), ".")[0])
	if err != nil || major < 20 {
		t.Skip("the TypeScript package is not tested: there is no Node 20 or newer")
	}
	if _, err := os.Stat(filepath.Join(typescript, "node_modules")); err != nil {
		t.Skip("the TypeScript package is not tested: run npm ci in sdk/typescript first")
	}
}

// runNPM runs npm in the package's folder, and returns what it prints.
func runNPM(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "npm", args...)
	cmd.Dir = typescript
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	assert.NoError(t, err, "npm %v: %s", args, out)
	return string(out)
}
