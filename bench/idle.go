package main

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// idleTenants is among how many tenants the types are divided.
const idleTenants = 100

// idleConfig says how many types there are and for how long nothing happens.
type idleConfig struct {
	options
	types  sizes
	settle time.Duration // after the start, before it is measured
	idle   time.Duration // that is measured
}

func parseIdle(args []string) (idleConfig, error) {
	cfg := idleConfig{types: sizes{0, 1000}}
	err := cfg.parse(args, "a few seconds and types, to see that nothing is broken", func(f *flag.FlagSet) {
		f.Var(&cfg.types, "types", "task types, ascending, such as 0,1000,5000; they are of 100 tenants")
		f.DurationVar(&cfg.settle, "settle", 3*time.Minute, "time to calm down before each measurement: tallies are added up for two minutes")
		f.DurationVar(&cfg.idle, "idle", 2*time.Minute, "time that is measured")
	})
	if cfg.short {
		cfg.types, cfg.settle, cfg.idle = sizes{0, 200}, 3*time.Second, 10*time.Second
	}
	return cfg, err
}

// runIdle measures what a node and Postgres cost that have nothing to do: with task
// types that were never used, and once each has had a task.
func runIdle(ctx context.Context, args []string) error {
	cfg, err := parseIdle(args)
	if err != nil {
		return err
	}
	b := &bench{options: cfg.options, settings: map[string]string{"shared_preload_libraries": "pg_stat_statements"}}
	if err := b.begin(ctx, b.startPostgres, b.startWorker, b.migrate); err != nil {
		return err
	}
	defer b.stop()
	g := grid{Machine: describeMachine(), By: "Task types"}
	if g.Machine.Postgres, err = b.db.version(ctx); err != nil {
		return err
	}
	made := 0
	for _, n := range cfg.types {
		fmt.Fprintf(os.Stderr, "bench: %d task types\n", n)
		if err := b.makeTypes(ctx, made, n); err != nil {
			return fmt.Errorf("make types: %w", err)
		}
		made = max(made, n)
		g.Columns = append(g.Columns, number(float64(n)))
		figures, err := b.idleFigures(ctx, cfg, n)
		if err != nil {
			return fmt.Errorf("%d types: %w", n, err)
		}
		g.add(figures)
	}
	g.writeMarkdown(os.Stdout)
	return writeJSON(cfg.json, g)
}

func (b *bench) migrate(ctx context.Context) error {
	if _, err := store.Migrate(ctx, b.url()); err != nil {
		return err
	}
	_, err := b.db.conn.Exec(ctx, `CREATE EXTENSION pg_stat_statements`)
	return err
}

// typeOf returns the tenant and the name of a type by its number.
func idleType(n int) (tenant, name string) {
	return "tenant" + strconv.Itoa(n%idleTenants), "type" + strconv.Itoa(n)
}

// makeTypes makes the types of some numbers, and the tenants if there are none yet.
func (b *bench) makeTypes(ctx context.Context, from, to int) error {
	if from == 0 {
		for n := range idleTenants {
			tenant, _ := idleType(n)
			if _, err := store.CreateTenant(ctx, b.url(), tenant); err != nil && asyncflow.CodeOf(err) != asyncflow.CodeConflict {
				return err
			}
		}
	}
	s, err := store.Open(ctx, store.Config{URL: b.url(), Node: "bench"})
	if err != nil {
		return err
	}
	defer s.Close()
	var g errgroup.Group
	g.SetLimit(submitters)
	for n := from; n < to; n++ {
		g.Go(func() error {
			tenant, name := idleType(n)
			_, _, err := s.PutTaskType(ctx, tenant, asyncflow.TaskType{Name: name, Stages: []asyncflow.Stage{{Name: "call"}}}.WithDefaults())
			return err
		})
	}
	return g.Wait()
}

// idleFigures starts a node and measures it twice.
func (b *bench) idleFigures(ctx context.Context, cfg idleConfig, types int) (figures, error) {
	if err := b.startNode(ctx); err != nil {
		return nil, err
	}
	defer b.stopNode()
	all, err := b.whileIdle(ctx, cfg, "unused", "")
	if err != nil {
		return nil, err
	}
	if err := b.useAll(ctx, types); err != nil {
		return nil, err
	}
	used, err := b.whileIdle(ctx, cfg, "used", ", each had a task")
	return append(all, used...), err
}

// useAll submits a task of each type and waits until it stands where it stays: their
// stages have no endpoint.
func (b *bench) useAll(ctx context.Context, types int) error {
	var g errgroup.Group
	g.SetLimit(submitters)
	for i := range min(types, idleTenants) {
		g.Go(func() error {
			tenant, _ := idleType(i)
			token, err := b.token(tenant)
			if err != nil {
				return err
			}
			api := &client{http: b.api.http, base: b.api.base, token: token}
			for n := i; n < types; n += idleTenants {
				_, name := idleType(n)
				if _, err := api.call(ctx, http.MethodPost, "/v1/tasks", appendTask(nil, name, n, contextBytes, "")); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// whileIdle waits until all is calm and measures.
func (b *bench) whileIdle(ctx context.Context, cfg idleConfig, key, name string) (figures, error) {
	before, err := b.costs(ctx)
	for _, pause := range []time.Duration{cfg.settle, cfg.idle} {
		if err == nil {
			before, err = b.costs(ctx)
		}
		if err != nil {
			return nil, err
		}
		if err := sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
	after, err := b.costs(ctx)
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / cfg.idle.Seconds() }
	return figures{
		{key + "_cpu_node", "CPU of the node" + name, "% of a core", share(after.node - before.node)},
		{key + "_cpu_postgres", "CPU of Postgres" + name, "% of a core", share(after.postgres - before.postgres)},
		{key + "_statements", "Statements" + name, "a second", float64(after.statements-before.statements) / cfg.idle.Seconds()},
		{key + "_memory_node", "Memory of the node" + name, "MB", after.memory},
		{key + "_memory_postgres", "Memory of the node's connections" + name, "MB", after.backends},
	}, err
}

// costs are what was used until now, and what is in use.
type costs struct {
	usage
	statements       int64
	memory, backends float64 // MB
}

func (b *bench) costs(ctx context.Context) (c costs, err error) {
	if c.usage, err = b.usage(); err != nil {
		return c, err
	}
	if err = b.db.conn.QueryRow(ctx, `SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements`).Scan(&c.statements); err != nil {
		return c, err
	}
	rows, err := b.db.conn.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE application_name = 'asyncflow' AND datname = current_database()`)
	if err != nil {
		return c, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return c, err
		}
		c.backends += privateMemory(pid)
	}
	c.memory = residentMemory(b.nodes[0].pid())
	return c, rows.Err()
}
