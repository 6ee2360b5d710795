package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/internal/devpg"
)

// Citus are servers with the same settings: a plain Postgres, a coordinator and workers.
type Citus struct {
	Plain string // the URL of a database
	URL   string // of a database of the coordinator

	servers []*devpg.Server // the plain one, the coordinator, the workers
	dir     *tempDir
}

// ErrNoCitus says that Citus isn't installed beside a Postgres of this machine.
var ErrNoCitus = errors.New("citus isn't installed beside the Postgres of this machine")

// citusPrograms returns the directory of the programs of a Postgres that has Citus.
func citusPrograms() (string, error) {
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/lib/citus.so", "/usr/pgsql-*/lib/citus.so",
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return filepath.Join(filepath.Dir(filepath.Dir(found[len(found)-1])), "bin"), nil
		}
	}
	return "", ErrNoCitus
}

// StartCitus starts a plain server, a coordinator and workers, each with fsync and synchronous
// commits.
func StartCitus(ctx context.Context, workers int) (c *Citus, err error) {
	programs, err := citusPrograms()
	if err != nil {
		return nil, err
	}
	c = &Citus{}
	if c.dir, err = newTempDir(); err != nil {
		return nil, err
	}
	for n := range workers + 2 {
		if err = c.start(ctx, programs, n); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	if err = c.join(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// start starts server n: 0 is the plain one.
func (c *Citus) start(ctx context.Context, programs string, n int) error {
	dir := c.dir.join(fmt.Sprint("pg", n))
	hba := c.dir.join("hba.conf")
	if err := os.WriteFile(hba, []byte("host all all 127.0.0.1/32 trust\n"), 0o644); err != nil {
		return err
	}
	settings := map[string]string{
		"shared_buffers":     "256MB",
		"max_wal_size":       "2GB",
		"checkpoint_timeout": "15min",
		"hba_file":           hba,
	}
	if n > 0 {
		maps.Copy(settings, map[string]string{
			"shared_preload_libraries":           "citus",
			"max_prepared_transactions":          "200",
			"wal_level":                          "logical",
			"citus.node_conninfo":                "sslmode=disable",
			"citus.max_cached_conns_per_worker":  "8",
			"citus.enable_statistics_collection": "off",
		})
	}
	s, err := devpg.Start(ctx, devpg.Config{DataDir: dir, BinDir: programs, Durable: true,
		Settings: settings})
	if err != nil {
		return err
	}
	c.servers = append(c.servers, s)
	return nil
}

// join makes a database on all servers, and joins all but the plain one.
func (c *Citus) join(ctx context.Context) error {
	for n, s := range c.servers {
		if err := s.EnsureDatabase(ctx, nodeDatabase); err != nil {
			return err
		}
		if n == 0 {
			c.Plain = s.URL(nodeDatabase)
			continue
		}
		if err := execOn(ctx, s.URL(nodeDatabase), `CREATE EXTENSION citus`); err != nil {
			return err
		}
	}
	c.URL = c.servers[1].URL(nodeDatabase)
	for n, s := range c.servers[1:] {
		call := "citus_add_node"
		if n == 0 {
			call = "citus_set_coordinator_host"
		}
		err := execOn(ctx, c.URL, `SELECT `+call+`('127.0.0.1', $1)`, s.Config().Port)
		if err != nil {
			return err
		}
	}
	return nil
}

func execOn(ctx context.Context, url, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// WorkerOf returns which worker has a tenant, in the order of CPU.
func (c *Citus) WorkerOf(ctx context.Context, tenant string) (n int, err error) {
	conn, err := pgx.Connect(ctx, c.URL)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var port int
	err = conn.QueryRow(ctx, `SELECT n.nodeport FROM pg_dist_shard s
		JOIN pg_dist_placement p USING (shardid) JOIN pg_dist_node n USING (groupid)
		WHERE s.logicalrelid = ($1 || '.rolls')::regclass`, "tenant_"+tenant).Scan(&port)
	for i, s := range c.servers {
		if s.Config().Port == port {
			return i, err
		}
	}
	return 0, errors.Join(err, fmt.Errorf("no server has tenant %s", tenant))
}

// Checkpoint lets every round begin alike.
func (c *Citus) Checkpoint(ctx context.Context) error {
	for _, s := range c.servers {
		if err := execOn(ctx, s.URL(nodeDatabase), `CHECKPOINT`); err != nil {
			return err
		}
	}
	return nil
}

// CPU returns the CPU time that each server has used: the plain one, the coordinator, the workers.
func (c *Citus) CPU() (all []time.Duration, err error) {
	for _, s := range c.servers {
		used, err := machine.CPUOfFamily(s.PID())
		if err != nil {
			return nil, err
		}
		all = append(all, used)
	}
	return all, nil
}

// Stop ends the servers, and removes their data.
func (c *Citus) Stop() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), stopPostgresLimit)
	defer cancel()
	for _, s := range c.servers {
		err = errors.Join(err, s.Stop(ctx))
	}
	return errors.Join(err, c.dir.close())
}
