package rig

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a program that the bench started. It runs in a process group of its own, so that a
// Ctrl-C in the terminal reaches the bench alone. On Linux the kernel kills it when the bench dies.
type Process struct {
	Name string
	cmd  *exec.Cmd
	done chan struct{} // closed at its end
	err  error         // how it ended, once done is closed
}

// StartProcess starts a program. Its output goes to our standard error, unless cmd says otherwise.
func StartProcess(name string, cmd *exec.Cmd) (*Process, error) {
	if cmd.Stdout == nil {
		cmd.Stdout = os.Stderr
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = childAttributes()
	p := &Process{Name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run keeps its thread until the process is gone: when the thread that started a process ends, the
// kernel takes that for the end of the parent.
func (p *Process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.err = p.cmd.Wait()
}

// PID returns the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Wait waits until the end of the process.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// stopPatience is how long a process may take to end before it is killed.
const stopPatience = 10 * time.Second

// stop ends the process and waits until it is gone.
func (p *Process) stop() {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		fmt.Fprintf(os.Stderr, "bench: %s did not stop, killing it\n", p.Name)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
