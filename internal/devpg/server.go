//go:build linux || darwin

package devpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

// goneTimeout bounds the wait until a killed server's processes are gone.
const goneTimeout = 30 * time.Second

// Server is a running Postgres. Its methods may be called concurrently.
type Server struct {
	cfg      Config
	dir      layout
	password string
	cmd      *exec.Cmd
	log      *serverLog
	asked    atomic.Bool // we told it to end

	done chan struct{} // closed when the process is gone; these are set before:
	exit error         // how it ended
	tail string        // the end of its log
}

// run starts the process, reports that, and waits for its end. It keeps its thread throughout:
// for the kernel, the end of the thread that started the process is the death of the parent.
func (s *Server) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)
	defer s.log.close()
	err := s.cmd.Start()
	started <- err
	if err != nil {
		return
	}
	s.exit = s.cmd.Wait()
	s.tail = s.log.tail()
}

// URL returns the URL of a database on the server for its superuser, including the password.
func (s *Server) URL(database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, s.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.cfg.Port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Config returns the server's Config with directories and port resolved: a server started with it
// is at the same addresses.
func (s *Server) Config() Config { return s.cfg }

// PID returns the id of the server's main process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Done returns a channel that is closed at the end of the server's process. Err says whether that
// was requested.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns nil while the server runs and after Stop or Kill, or else how the server ended,
// with the last lines of its log.
func (s *Server) Err() error {
	if !s.ended() || s.asked.Load() {
		return nil
	}
	how := s.exit
	if how == nil {
		how = errors.New("it was told to by someone else")
	}
	return fmt.Errorf("postgres in %s ended: %w; its log ends: %s", s.dir, how, s.tail)
}

// Stop shuts the server down and waits until it is gone: it cuts connections and writes out
// committed data. If ctx ends first, Stop ends the server at once, which loses nothing
// committed but makes the next start slower, and returns the error of ctx. It is no error if
// the server is already gone.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.signal(syscall.SIGINT); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop postgres in %s: %w", s.dir, ctx.Err()),
			s.signal(syscall.SIGQUIT))
	}
}

// Kill ends all processes of the server at once with SIGKILL, and waits until the last is gone.
// Data that the server had passed to the operating system survives: this is like a crash of the
// program, not like a power loss.
func (s *Server) Kill() error {
	if s.ended() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), goneTimeout)
	defer cancel()
	// Once halted, the main process starts no further children while we list them.
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	family := children(s.PID())
	if err := s.signal(syscall.SIGKILL); err != nil {
		return err
	}
	for _, pid := range family {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	select {
	case <-s.done:
		return s.dir.waitUnlocked(ctx)
	case <-ctx.Done():
		return fmt.Errorf("kill postgres in %s: %w", s.dir, ctx.Err())
	}
}

// abort ends a server that did not become ready.
func (s *Server) abort() {
	_ = s.signal(syscall.SIGQUIT)
	select {
	case <-s.done:
	case <-time.After(goneTimeout):
		_ = s.signal(syscall.SIGKILL)
	}
}

// signal sends a signal to the main process. From then on, its end is expected. It is no error
// if the process is already gone.
func (s *Server) signal(sig syscall.Signal) error {
	if s.ended() {
		return nil
	}
	s.asked.Store(true)
	if err := s.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal postgres in %s: %w", s.dir, err)
	}
	return nil
}

func (s *Server) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}
