//go:build linux || darwin

package devpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/asyncflow/asyncflow"
)

// child runs the programs of Postgres for one data directory.
type child struct {
	ctx  context.Context // ends the short programs, not the server
	dir  layout
	acct account
	lock *os.File // inherited by all of them
}

// command returns a program to start on a locked thread. It gets sig when this process dies.
func (c child) command(
	ctx context.Context, sig syscall.Signal, program string, args ...string,
) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = string(c.dir)
	cmd.Env = childEnv()
	cmd.SysProcAttr = procAttr(c.acct, sig)
	if c.lock != nil {
		cmd.ExtraFiles = []*os.File{c.lock}
	}
	return cmd
}

// childEnv returns the environment of the programs: only what they need to start. PG* variables
// would change the server, and others hold our secrets. The locale keeps messages in English,
// since this package reads some.
func childEnv() []string {
	env := []string{"LC_ALL=C"}
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// run runs a short program and returns its output. An error carries the last lines of it. When
// c.ctx ends, or after stepTimeout, the program and its children are killed.
func (c child) run(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(c.ctx, stepTimeout)
	defer cancel()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := c.command(ctx, syscall.SIGKILL, program, args...)
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout = &out
	cmd.Stderr = &out
	err := cmd.Run()
	switch {
	case err == nil:
		return out.String(), nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s: %w", filepath.Base(program), ctx.Err())
	case errors.Is(err, fs.ErrPermission):
		return "", c.noAccess(program, err)
	default:
		return "", fmt.Errorf("%s: %w: %s", filepath.Base(program), err, lastLines(out.Bytes()))
	}
}

// noAccess explains why the account could not run the program in the data
// directory.
func (c child) noAccess(program string, err error) error {
	if dir := c.acct.barrier(string(c.dir)); dir != "" {
		return asyncflow.Errorf(asyncflow.CodeInvalid,
			"the data directory %s can't be used: Postgres runs as user %s, who may not enter %s; "+
				"choose another, such as /var/lib/asyncflow",
			c.dir, c.acct.name, dir)
	}
	return fmt.Errorf("run %s as user %s: %w", program, c.acct.name, err)
}

var versionLine = regexp.MustCompile(`^postgres \([^)]*\) (\d+)`)

// majorVersion asks the postgres of a folder for its major version.
func (c child) majorVersion(binDir string) (int, error) {
	program := filepath.Join(binDir, "postgres")
	out, err := c.run(program, "--version")
	if err != nil {
		return 0, err
	}
	m := versionLine.FindStringSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s --version says %q, which has no version", program, out)
	}
	return strconv.Atoi(m[1])
}
