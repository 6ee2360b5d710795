package devpg

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// procAttr returns the attributes of a child that runs as acct, in a process
// group of its own. There is no signal on a parent's death here.
func procAttr(acct account, _ syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: acct.credential(), Setpgid: true}
}

// servesCluster reports whether the process is a Postgres server. It can't see
// of which cluster, so it is careful: any one counts.
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
