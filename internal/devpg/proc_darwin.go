package devpg

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// procAttr returns the attributes of a child that runs as acct, in its own process group. This
// system can't signal a child when its parent dies.
func procAttr(acct account, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: acct.credential(), Setpgid: true}
}

// servesCluster reports whether the process is a Postgres server. It can't see the server's
// cluster, so to be safe, any server counts.
func servesCluster(pid int, _ string) bool {
	out, err := exec.Command("/bin/ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && filepath.Base(strings.TrimSpace(string(out))) == "postgres"
}

// children returns the ids of the child processes of pid.
func children(pid int) []int {
	var pids []int
	out, _ := exec.Command("/usr/bin/pgrep", "-P", strconv.Itoa(pid)).Output()
	for _, f := range strings.Fields(string(out)) {
		if child, err := strconv.Atoi(f); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}
