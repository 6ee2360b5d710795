//go:build unix

package main

import (
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// keys calls for each key that is pressed, if there is a terminal. It returns a function that gives
// the terminal back, which may be called more than once.
func (o *listenOutput) keys(pressed func(key byte)) (restore func()) {
	if o.format != "table" || !isTerminal(o.stdout) || !isTerminal(os.Stdin) {
		return func() {}
	}
	t := &keyboard{fd: int(os.Stdin.Fd())}
	signals := make(chan os.Signal, 1)
	// In the background, reading or setting the terminal would stop this process.
	signal.Ignore(unix.SIGTTIN, unix.SIGTTOU)
	signal.Notify(signals, unix.SIGTSTP, unix.SIGCONT, unix.SIGQUIT)
	t.takeTerminal()
	go t.handleSignals(signals)
	go t.read(pressed)
	return t.leave
}

// keyboard is a terminal with keys that come one by one and aren't shown. Its signals work as
// usual. All jobs of the shell share its modes, so it is touched only in the foreground.
type keyboard struct {
	fd     int
	mu     sync.Mutex
	before *unix.Termios // nil: the terminal isn't taken
	left   bool
}

// takeTerminal takes the terminal if this process is in the foreground.
func (t *keyboard) takeTerminal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.left || t.before != nil || !t.foreground() {
		return
	}
	before, err := unix.IoctlGetTermios(t.fd, getTermios)
	if err != nil {
		return
	}
	mode := *before
	mode.Lflag &^= unix.ECHO | unix.ICANON
	mode.Cc[unix.VMIN], mode.Cc[unix.VTIME] = 1, 0
	if unix.IoctlSetTermios(t.fd, setTermios, &mode) == nil {
		t.before = before
	}
}

// releaseTerminal sets the terminal as it was. In the background the shell did so.
func (t *keyboard) releaseTerminal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before != nil && t.foreground() {
		_ = unix.IoctlSetTermios(t.fd, setTermios, t.before) // there is nothing else to try
	}
	t.before = nil
}

// leave gives the terminal back for good.
func (t *keyboard) leave() {
	t.mu.Lock()
	t.left = true
	t.mu.Unlock()
	t.releaseTerminal()
}

func (t *keyboard) foreground() bool {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// handleSignals does what signals do without it, and gives the terminal back before.
func (t *keyboard) handleSignals(signals <-chan os.Signal) {
	for s := range signals {
		switch s {
		case unix.SIGTSTP: // Ctrl-Z
			t.releaseTerminal()
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		case unix.SIGCONT:
			t.takeTerminal()
		case unix.SIGQUIT:
			t.leave()
			signal.Reset(unix.SIGQUIT)
			_ = unix.Kill(os.Getpid(), unix.SIGQUIT)
		}
	}
}

// read reads keys. In the background a read fails, and is tried again later.
func (t *keyboard) read(pressed func(key byte)) {
	var key [1]byte
	for {
		n, err := os.Stdin.Read(key[:])
		switch {
		case n == 1:
			pressed(key[0])
		case t.foreground():
			if err != nil {
				return
			}
		default:
			time.Sleep(asleepTick)
		}
	}
}
