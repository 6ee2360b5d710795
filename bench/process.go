package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a program that we started. It has a process group of its own, so
// that a Ctrl-C in the terminal reaches us alone, and on Linux it is killed
// when we die.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
}

// startProcess starts a program. What it has to say goes to our standard error.
func startProcess(name string, cmd *exec.Cmd) (*process, error) {
	if cmd.Stdout == nil {
		cmd.Stdout = os.Stderr
	}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = childAttributes()
	p := &process{name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// run keeps its thread until the process is gone: the kernel takes the end of
// the thread that started it for ours.
func (p *process) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	err := p.cmd.Start()
	started <- err
	if err == nil {
		p.err = p.cmd.Wait()
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stopPatience is how long a process may take to end before it is killed.
const stopPatience = 10 * time.Second

// stop ends the process and waits until it is gone.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(stopPatience):
		fmt.Fprintf(os.Stderr, "bench: %s did not stop, killing it\n", p.name)
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
