package devpg

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// procAttr returns the attributes of a child that runs as acct, in its own process group, and
// gets sig when the thread that started it ends. That thread must live until the child is gone.
func procAttr(acct account, sig syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: acct.credential(), Setpgid: true, Pdeathsig: sig}
}

// servesCluster reports whether the process is a server of the cluster: a server's working
// directory is its cluster. A process that we may not inspect belongs to another user, so it
// can't be one.
func servesCluster(pid int, pgdata string) bool {
	cwd, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	dir, err := os.Stat(pgdata)
	return err == nil && os.SameFile(cwd, dir)
}

// children returns the ids of the child processes of pid.
func children(pid int) []int {
	var pids []int
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, name := range lists {
		text, _ := os.ReadFile(name)
		for _, f := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(f); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}
