package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/auth"
	"github.com/asyncflow/asyncflow/internal/devpg"
)

const (
	tenant       = "bench"
	postgresDir  = "pg"   // in the temporary directory
	nodeDatabase = "node" // what the node uses
	startLimit   = 2 * time.Minute
)

// bench is everything that runs, and the means to measure it.
type bench struct {
	options
	dir      *tempDir
	postgres *devpg.Server
	node     *process
	worker   *process
	api      *client // the node's API
	sink     *client // the worker
	db       *database
	settings map[string]string // of Postgres, on top of those that it always has
	nodeArgs []string          // flags of the node, on top of those that it always has
	secret   string            // of the node's tokens
	next     int               // number of the next task, of whatever type

	stops []func()
}

// start starts Postgres, the worker and a node, and makes a tenant.
func start(ctx context.Context, o options, nodeArgs ...string) (*bench, error) {
	b := &bench{options: o, nodeArgs: nodeArgs}
	return b, b.begin(ctx, b.startPostgres, b.startWorker, b.startNode, b.makeTenant)
}

// begin takes the steps of a start. One that fails ends what was started.
func (b *bench) begin(ctx context.Context, steps ...func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, step := range steps {
		if err := step(ctx); err != nil {
			b.stop()
			return err
		}
	}
	return nil
}

// stop ends everything, last started first.
func (b *bench) stop() {
	for i := len(b.stops) - 1; i >= 0; i-- {
		b.stops[i]()
	}
}

func (b *bench) startPostgres(ctx context.Context) (err error) {
	if b.dir, err = newTempDir(); err != nil {
		return err
	}
	settings := map[string]string{"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "15min"}
	maps.Copy(settings, b.settings)
	b.stops = append(b.stops, func() {
		if err := b.dir.close(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: remove the data:", err)
		}
	})
	b.postgres, err = devpg.Start(ctx, devpg.Config{DataDir: b.dir.join(postgresDir), Durable: true, Settings: settings})
	if err != nil {
		return err
	}
	b.stops = append(b.stops, b.stopPostgres)
	if err := b.postgres.EnsureDatabase(ctx, nodeDatabase); err != nil {
		return err
	}
	if b.db, err = openDatabase(ctx, b.url()); err == nil {
		b.stops = append(b.stops, b.db.close)
	}
	return err
}

func (b *bench) url() string { return b.postgres.URL(nodeDatabase) }

func (b *bench) stopPostgres() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := b.postgres.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

// startWorker starts this program as a worker, and reads its address.
func (b *bench) startWorker(context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	output, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer output.Close()
	cmd := exec.Command(self, workerMode)
	cmd.Stdout = w
	if _, err = cmd.StdinPipe(); err != nil { // it ends when we do
		return err
	}
	b.worker, err = startProcess("the worker", cmd)
	_ = w.Close()
	if err != nil {
		return err
	}
	b.stops = append(b.stops, b.worker.stop)
	address, err := bufio.NewReader(output).ReadString('\n')
	b.sink = &client{http: newHTTPClient(), base: "http://" + strings.TrimSpace(address)}
	return err
}

// startNode starts a node and waits until it takes requests.
func (b *bench) startNode(ctx context.Context) error {
	if err := b.build(ctx); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	b.secret = rand.Text() + rand.Text()
	cmd := exec.Command(b.binary, append([]string{"serve", "--migrate", "--listen", address}, b.nodeArgs...)...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+b.url(), "ASYNCFLOW_SECRET="+rand.Text()+rand.Text(), "ASYNCFLOW_JWT_SECRET="+b.secret,
		"ASYNCFLOW_ALLOW_HTTP=1", "ASYNCFLOW_ALLOW_PRIVATE_NETWORKS=1", "ASYNCFLOW_VERIFY_ENDPOINTS=false", "ASYNCFLOW_LOG_LEVEL=error")
	if b.node, err = startProcess("the node", cmd); err != nil {
		return err
	}
	b.stops = append(b.stops, b.node.stop)
	token, err := b.token(tenant)
	b.api = &client{http: newHTTPClient(), base: "http://" + address, token: token}
	if err != nil {
		return err
	}
	return b.awaitNode(ctx)
}

// build builds the program to measure, unless there is one.
func (b *bench) build(ctx context.Context) error {
	if b.binary != "" {
		return nil
	}
	b.binary = b.dir.join("asyncflow")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", b.binary, "github.com/asyncflow/asyncflow/cmd/asyncflow")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build ./cmd/asyncflow: %w", err)
	}
	return nil
}

// freeAddress returns an address on the loopback that is free now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// token returns a token for a tenant.
func (b *bench) token(tenant string) (string, error) {
	cfg := auth.DefaultConfig()
	cfg.HMACSecret = []byte(b.secret)
	issuer, err := auth.NewIssuer(cfg)
	if err != nil {
		return "", err
	}
	return issuer.Issue(tenant, "bench", []auth.Scope{auth.ScopeSubmit, auth.ScopeRead, auth.ScopeManage}, 24*time.Hour, time.Now())
}

func (b *bench) awaitNode(ctx context.Context) error {
	return poll(ctx, 20*time.Millisecond, func() (bool, error) {
		select {
		case <-b.node.done:
			return false, errors.Join(errors.New("the node ended"), b.node.err)
		default:
		}
		_, err := b.api.call(ctx, http.MethodGet, "/readyz", nil)
		return err == nil, nil
	})
}

// poll calls done once a period until it says so, or fails, or ctx ends.
func poll(ctx context.Context, period time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}
