//go:build linux || darwin

package devpg_test

import (
	"bufio"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/stretchr/testify/require"
)

// helperDir names, in a child process, the data directory to start a server in.
const helperDir = "DEVPG_HELPER_DIR"

// TestHelper is the child process of tests that kill the server's parent.
func TestHelper(t *testing.T) {
	dir := os.Getenv(helperDir)
	if dir == "" {
		t.Skip("runs as the child process of another test")
	}
	server, err := devpg.Start(t.Context(), devpg.Config{DataDir: dir})
	require.NoError(t, err)
	fmt.Println(server.PID())
	select {}
}

// startHelper starts a process with a server in dir, and returns when the server is ready.
func startHelper(t *testing.T, dir string) *osexec.Cmd {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), helperDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return cmd
}

func TestKilledParentLeavesNoServer(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals a child when its parent dies")
	}
	dir := pgtest.Dir(t)
	helper := startHelper(t, dir)
	require.NotEmpty(t, processesIn(t, dir))

	require.NoError(t, helper.Process.Kill())
	_ = helper.Wait()

	require.Eventually(t, func() bool { return len(processesIn(t, dir)) == 0 }, 2*time.Minute,
		20*time.Millisecond)
}

func TestStartRightAfterTheParentWasKilled(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux signals a child when its parent dies")
	}
	dir := pgtest.Dir(t)
	helper := startHelper(t, dir)
	require.NoError(t, helper.Process.Kill())

	pgtest.Server(t, devpg.Config{DataDir: dir})

	_ = helper.Wait()
}

// processesIn returns the programs with dir or a folder below as working directory; none on systems
// without /proc.
func processesIn(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	cwds, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	for _, link := range cwds {
		cwd, err := os.Readlink(link)
		if err == nil && strings.HasPrefix(cwd, dir) {
			name, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline"))
			found = append(found, string(name))
		}
	}
	return found
}

// sleeper returns the id of a process that lives as long as the test and runs as the owner of
// the cluster, so that postgres must consider it.
func sleeper(t *testing.T, dataDir string) string {
	t.Helper()
	cmd := osexec.CommandContext(t.Context(), "sleep", "600")
	cmd.SysProcAttr = asOwner(t, filepath.Join(dataDir, "pgdata"))
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return strconv.Itoa(cmd.Process.Pid)
}
