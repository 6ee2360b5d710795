package main

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"time"

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
	database string // that the nodes use
	nodes    []*node
	worker   *process
	api      *client // that of the first node
	sink     *client // the worker
	db       *database
	settings map[string]string // of Postgres, on top of those that it always has
	nodeArgs []string          // flags of the nodes, on top of those that they always have
	secrets  secrets
	next     int // number of the next task, of whatever type

	stops []func()
}

// start starts Postgres, the worker and a node, and makes a tenant.
func start(ctx context.Context, o options, nodeArgs ...string) (*bench, error) {
	b := &bench{options: o, nodeArgs: nodeArgs}
	return b, b.begin(ctx, b.startPostgres, b.startWorker, b.startNode, b.makeTenant)
}

// side returns another bench on the same Postgres, with a database and a worker of its own,
// and no node yet. binary is the program that its nodes run; empty: the same.
func (b *bench) side(ctx context.Context, database, binary string) (*bench, error) {
	s := &bench{options: b.options, dir: b.dir, postgres: b.postgres, database: database, nodeArgs: b.nodeArgs}
	if binary != "" {
		s.binary = binary
	}
	err := s.begin(ctx, s.openDatabase, s.startWorker)
	if err == nil {
		b.stops = append(b.stops, s.stop)
	}
	return s, err
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
	b.stopNodes()
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
	b.postgres, err = devpg.Start(ctx, devpg.Config{DataDir: b.dir.join(postgresDir), Durable: true, Settings: settings,
		Progress: os.Stderr})
	if err != nil {
		return err
	}
	b.stops = append(b.stops, b.stopPostgres)
	b.database = nodeDatabase
	return b.openDatabase(ctx)
}

// openDatabase makes the database of the nodes.
func (b *bench) openDatabase(ctx context.Context) (err error) {
	b.secrets = newSecrets()
	if err := b.postgres.EnsureDatabase(ctx, b.database); err != nil {
		return err
	}
	if b.db, err = openDatabase(ctx, b.url()); err == nil {
		b.stops = append(b.stops, b.db.close)
	}
	return err
}

func (b *bench) url() string { return b.postgres.URL(b.database) }

// stopPostgresLimit is how long Postgres may take to write everything out.
const stopPostgresLimit = time.Minute

func (b *bench) stopPostgres() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPostgresLimit)
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

// sleep waits for d, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
