package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
)

// idleConfig says how many types there are, and for how long nothing happens.
type idleConfig struct {
	options
	types   sizes
	tenants int
	settle  time.Duration // after the start, before it is measured
	idle    time.Duration // that is measured
}

func parseIdle(args []string) (idleConfig, error) {
	cfg := idleConfig{types: sizes{0, 1000}}
	const short = "a few seconds and types, to see that nothing is broken"
	err := cfg.parse(args, short, func(f *flag.FlagSet) {
		f.Var(&cfg.types, "types",
			"task types, ascending, such as 0,1000,5000")
		f.IntVar(&cfg.tenants, "tenants", tenants, "tenants that the types belong to")
		f.DurationVar(&cfg.settle, "settle", 3*time.Minute,
			"time to calm down before each measurement: tallies are added up for two minutes")
		f.DurationVar(&cfg.idle, "idle", 2*time.Minute, "time that is measured")
	})
	if cfg.short {
		cfg.types, cfg.settle, cfg.idle = sizes{0, 200}, 3*time.Second, 10*time.Second
	}
	return cfg, err
}

// runIdle asks: what do task types cost that have nothing to do? It measures a node and Postgres
// with types that were never used, and once each has had a task.
func runIdle(ctx context.Context, args []string) error {
	cfg, err := parseIdle(args)
	if err != nil {
		return err
	}
	what := cfg.rig()
	what.Settings = map[string]string{"shared_preload_libraries": "pg_stat_statements"}
	r := rig.New(what)
	if err := r.Begin(ctx, r.StartPostgres, r.StartWorker); err != nil {
		return err
	}
	defer r.Stop()
	if _, err := r.DB.Conn.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
		return err
	}
	g := report.Grid{Machine: describe(r), By: "Task types"}
	var types *rig.ManyTypes
	for _, n := range cfg.types {
		fmt.Fprintf(os.Stderr, "bench: %d task types\n", n)
		err := r.WithNode(ctx, func(ctx context.Context) (err error) {
			if types == nil {
				if types, err = r.NewManyTypes(ctx, cfg.tenants); err != nil {
					return err
				}
			}
			types.Locate()
			return types.Add(ctx, n, false)
		})
		if err != nil {
			return fmt.Errorf("make types: %w", err)
		}
		g.Columns = append(g.Columns, report.Number(float64(n)))
		err = r.WithNode(ctx, func(ctx context.Context) error {
			types.Locate()
			figures, err := idleFigures(ctx, r, cfg, types, n)
			g.Add(figures)
			return err
		})
		if err != nil {
			return fmt.Errorf("%d types: %w", n, err)
		}
	}
	g.WriteMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, g)
}

// idleFigures measures a new node: before the types are used, and after.
func idleFigures(
	ctx context.Context, r *rig.Rig, cfg idleConfig, types *rig.ManyTypes, n int,
) (report.Figures, error) {
	all, err := whileIdle(ctx, r, cfg, "unused", "")
	if err != nil {
		return nil, err
	}
	if err := useAll(ctx, types, n); err != nil {
		return nil, err
	}
	used, err := whileIdle(ctx, r, cfg, "used", ", each had a task")
	return append(all, used...), err
}

// useAll submits a task of each type. The tasks stay where they are: their stages have no endpoint.
func useAll(ctx context.Context, types *rig.ManyTypes, n int) error {
	var g errgroup.Group
	g.SetLimit(rig.Submitters)
	for i := range n {
		g.Go(func() error {
			client, name := types.At(i)
			return client.Submit(ctx, name, i)
		})
	}
	return g.Wait()
}

// whileIdle waits until all is calm, and measures.
func whileIdle(
	ctx context.Context, r *rig.Rig, cfg idleConfig, key, name string,
) (all report.Figures, err error) {
	if err := rig.Sleep(ctx, cfg.settle); err != nil {
		return nil, err
	}
	before, err := readIdle(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := rig.Sleep(ctx, cfg.idle); err != nil {
		return nil, err
	}
	after, err := readIdle(ctx, r)
	used, idle := after.Since(before.Usage), cfg.idle.Seconds()
	all.Add(key+"_cpu_node", "CPU of the node"+name, "% of a core", 100*used.Node.Seconds()/idle)
	all.Add(key+"_cpu_postgres", "CPU of Postgres"+name, "% of a core",
		100*used.Postgres.Seconds()/idle)
	all.Add(key+"_statements", "Statements"+name, "a second",
		float64(after.statements-before.statements)/idle)
	all.Add(key+"_memory_node", "Memory of the node"+name, "MB", after.memory)
	all.Add(key+"_memory_postgres", "Memory of the node's connections"+name, "MB", after.backends)
	all.Add(key+"_share_postgres", "the same with their share of the buffers (PSS)"+name, "MB",
		after.shares)
	all.Add(key+"_connections", "Connections of the node"+name, "", float64(after.connections))
	return all, err
}

// idleReading is what was used until now, and what is in use.
type idleReading struct {
	rig.Usage
	statements  int64
	connections int

	memory, backends, shares float64 // MB
}

func readIdle(ctx context.Context, r *rig.Rig) (now idleReading, err error) {
	if now.Usage, err = r.Usage(); err != nil {
		return now, err
	}
	err = r.DB.Conn.QueryRow(ctx,
		`SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_statements`).Scan(&now.statements)
	if err != nil {
		return now, err
	}
	rows, err := r.DB.Conn.Query(ctx, `
		SELECT pid FROM pg_stat_activity
		WHERE application_name = 'asyncflow' AND datname = current_database()`)
	if err != nil {
		return now, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int
		if err := rows.Scan(&pid); err != nil {
			return now, err
		}
		now.connections++
		now.backends += machine.PrivateMemory(pid)
		now.shares += machine.SharedMemory(pid)
	}
	now.memory = machine.ResidentMemory(r.Nodes[0].PID())
	return now, rows.Err()
}
