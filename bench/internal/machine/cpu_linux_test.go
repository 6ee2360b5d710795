package machine

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	s, err := parseStat("42 (a (b) c) S 7 42 42 0 -1 4194560 100 200 0 0 11 22 33 44 " +
		"20 0 1 0 12345 0 0")
	require.NoError(t, err)
	assert.Equal(t, stat{42, 7, 330 * time.Millisecond, 770 * time.Millisecond}, s)
	for _, line := range []string{"", "42", "42 (a) S 7", "42 (a) S " + strings.Repeat("x ", 20)} {
		t.Run(fmt.Sprintf("%.20q", line), func(t *testing.T) {
			_, err := parseStat(line)
			assert.Error(t, err, "%q", line)
		})
	}
}

func TestCPU(t *testing.T) {
	t.Parallel()
	own, err := CPU(os.Getpid())
	require.NoError(t, err)
	assert.Positive(t, own)
	family, err := CPUOfFamily(os.Getpid())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, family, own)

	cmd := exec.Command("true")
	require.NoError(t, cmd.Run())
	_, err = CPU(cmd.Process.Pid)
	assert.Error(t, err, "it has ended")
}
