//go:build linux || darwin

package devpg_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// asOwner returns the attributes for a child process to run as the owner of a directory.
func asOwner(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(dir)
	require.NoError(t, err)
	st := info.Sys().(*syscall.Stat_t)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
}
