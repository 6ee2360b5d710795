//go:build linux || darwin

package devpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/jackc/pgx/v5"
)

const (
	// stepTimeout bounds each step of a start, such as the wait for a server that stops, initdb on
	// a slow disk, or a recovery after a crash.
	stepTimeout = 2 * time.Minute
	// readyPoll is the interval at which a starting server is polled.
	readyPoll = 5 * time.Millisecond
	// portTries is the number of free ports to try if other programs take them first.
	portTries = 5
)

// errPortTaken says that a start failed because another program listens on the port.
var errPortTaken = errors.New("the port is taken")

// Start starts a server on the cluster in cfg.DataDir, and returns when it takes connections.
// It creates a missing cluster. The end of ctx aborts the start, but doesn't stop a started
// server.
//
// Errors that a caller may distinguish are Error values: CodeUnavailable if the programs of
// Postgres are neither installed nor fetched, or the server doesn't come up; CodeConflict if
// another server uses the data directory, or it holds a cluster of another major version, which
// stays unchanged; CodeInvalid for a wrong Config, and for a directory that the server's user
// can't enter.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	dir := layout(cfg.DataDir)
	if err := dir.create(); err != nil {
		return nil, err
	}
	lock, err := dir.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	acct, err := serverAccount(dir.pgdata())
	if err != nil {
		return nil, err
	}
	return child{ctx: ctx, dir: dir, acct: acct, lock: lock}.startServer(cfg)
}

// startServer finds or fetches the programs, prepares the cluster and launches the server.
func (c child) startServer(cfg Config) (*Server, error) {
	have, err := c.dir.clusterVersion()
	if err != nil {
		return nil, err
	}
	pg, err := c.ensureInstall(cfg, have)
	if err != nil {
		return nil, err
	}
	cfg.BinDir = pg.dir
	password, err := c.ensureCluster(pg, have, cfg.Durable)
	if err != nil {
		return nil, err
	}
	if err := c.dir.clearStale(); err != nil {
		return nil, err
	}
	return c.launchOnPort(cfg, password)
}

// launchOnPort launches the server on cfg.Port, or else on a free port; it tries another one if
// a program takes that port first.
func (c child) launchOnPort(cfg Config, password string) (*Server, error) {
	if cfg.Port != 0 {
		return c.launch(cfg, password)
	}
	var s *Server
	err := errPortTaken
	for i := 0; i < portTries && errors.Is(err, errPortTaken); i++ {
		if cfg.Port, err = freePort(); err != nil {
			return nil, err
		}
		s, err = c.launch(cfg, password)
	}
	return s, err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// launch starts postgres and waits until it takes connections.
func (c child) launch(cfg Config, password string) (*Server, error) {
	socketDir, err := c.dir.makeSocketDir(c.acct)
	if err != nil {
		return nil, err
	}
	log, err := openLog(cfg.Log, c.dir.log())
	if err != nil {
		return nil, fmt.Errorf("server log: %w", err)
	}
	cmd := c.command(context.WithoutCancel(c.ctx), syscall.SIGINT,
		install{dir: cfg.BinDir}.program("postgres"), serverArgs(cfg, c.dir.pgdata(), socketDir)...)
	cmd.Stdout, cmd.Stderr = log.out, log.out
	cmd.WaitDelay = 10 * time.Second
	s := &Server{cfg: cfg, dir: c.dir, password: password, cmd: cmd, log: log,
		done: make(chan struct{})}
	started := make(chan error)
	go s.run(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	ctx, cancel := context.WithTimeout(c.ctx, stepTimeout)
	defer cancel()
	if err := s.waitReady(ctx); err != nil {
		s.abort()
		return nil, err
	}
	return s, nil
}

// waitReady returns when the server takes connections. It first waits until postmaster.pid says
// so, which excludes another server on the same port, and then connects.
func (s *Server) waitReady(ctx context.Context) error {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	for {
		select {
		case <-s.done:
			return s.exitedEarly()
		case <-ctx.Done():
			return s.notReady(ctx.Err())
		case <-poll.C:
		}
		if pm, err := readPostmaster(s.dir.pgdata()); err != nil || pm.pid != s.PID() ||
			!pm.takesConnections() {
			continue
		}
		conn, err := pgx.Connect(ctx, s.URL("postgres"))
		if err != nil {
			return s.notReady(err)
		}
		return conn.Close(ctx)
	}
}

func (s *Server) notReady(err error) error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: err,
		Message: fmt.Sprintf("Postgres in %s does not take connections; its log ends: %s", s.dir,
			s.log.tail())}
}

func (s *Server) exitedEarly() error {
	err := &asyncflow.Error{Code: asyncflow.CodeUnavailable, Err: s.exit,
		Message: fmt.Sprintf("Postgres in %s ended while starting; its log ends: %s", s.dir,
			s.tail)}
	if strings.Contains(s.tail, "Address already in use") {
		err.Err = errPortTaken
	}
	return err
}
