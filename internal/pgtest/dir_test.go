package pgtest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestDirIsRemovedAfterTheTest(t *testing.T) {
	t.Parallel()
	var dir string
	t.Run("inner", func(t *testing.T) {
		dir = pgtest.Dir(t)
		require.DirExists(t, dir)
	})
	require.NoDirExists(t, dir)
}

// dirHelper marks the process that TestKilledProcessLeavesNoDir starts and kills.
const dirHelper = "PGTEST_DIR_HELPER"

func TestDirHelper(t *testing.T) {
	if os.Getenv(dirHelper) == "" {
		t.Skip("runs as the child process of another test")
	}
	server := pgtest.Server(t, devpg.Config{})
	fmt.Println(server.Config().DataDir)
	select {}
}

func TestKilledProcessLeavesNoDir(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDirHelper$")
	cmd.Env = append(os.Environ(), dirHelper+"=1")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	dir := strings.TrimSpace(line)
	require.DirExists(t, dir)

	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()

	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	}, 2*time.Minute, 20*time.Millisecond)
}
