package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/rig"
	"github.com/asyncflow/asyncflow/internal/sleep"
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
		f.Var(&cfg.types, "types", "task types, ascending, such as 0,1000,5000")
		f.IntVar(&cfg.tenants, "tenants", manyTenants, "tenants that they belong to")
		f.DurationVar(&cfg.settle, "settle", 3*time.Minute,
			"time to calm down before each measurement: tallies are added up for two minutes")
		f.DurationVar(&cfg.idle, "idle", 2*time.Minute, "time that is measured")
	})
	if cfg.short {
		cfg.types, cfg.tenants = sizes{0, 50}, 5
		cfg.settle, cfg.idle = 3*time.Second, 10*time.Second
	}
	if err == nil && cfg.tenants < 1 {
		err = errors.New("--tenants must be at least 1")
	}
	return cfg, err
}

// idleTargets are the targets for 10,000 types in 1,000 tenants, each after a task.
var idleTargets = []target{
	{"Memory of the node", "used_memory_node", "MB", 250, atMost},
	{"CPU of the node and of Postgres", "used_cpu", "% of a core", 3, atMost},
	{"Memory of the node's connections in Postgres", "used_pss_postgres", "MB", 400, atMost},
	{"Start of a node", "start", "s", 5, atMost},
	{"Relations of a type", "type_relations", "relations", 1, atMost},
	{"Making a tenant", "tenant_mean", "ms", 50, atMost},
	{"Making a type", "type_mean", "ms", 10, atMost},
}

// runIdle asks: what do idle task types cost? It measures a node and Postgres with types that were
// never used, and again after a task of each. It measures, too, how long it takes to make tenants
// and types.
func runIdle(ctx context.Context, args []string) error {
	cfg, err := parseIdle(args)
	if err != nil {
		return err
	}
	what := cfg.rig()
	what.Settings = map[string]string{
		"shared_preload_libraries": "pg_stat_statements",
		"pg_stat_statements.max":   "50000", // each tenant uses statements of its own
	}
	r := rig.New(what)
	if err := r.Begin(ctx, r.StartPostgres, r.StartWorker); err != nil {
		return err
	}
	defer r.Stop()
	if _, err := r.DB.Conn.Exec(ctx, `CREATE EXTENSION pg_stat_statements`); err != nil {
		return err
	}
	all := idleResult{Tenants: cfg.tenants}
	all.Machine, all.By = describe(r), "Task types"
	made := madeTypes{rig: r}
	for _, n := range cfg.types {
		fmt.Fprintf(os.Stderr, "bench: %d task types in %d tenants\n", n, cfg.tenants)
		err := r.WithNode(ctx, func(ctx context.Context) error {
			return made.upTo(ctx, n, cfg.tenants)
		})
		if err != nil {
			return fmt.Errorf("make types: %w", err)
		}
		all.Columns = append(all.Columns, report.Number(float64(n)))
		err = r.WithNode(ctx, func(ctx context.Context) error {
			made.types.Locate()
			all.Last, err = idleFigures(ctx, r, cfg, made.types, n)
			all.Add(all.Last)
			return err
		})
		if err != nil {
			return fmt.Errorf("%d types: %w", n, err)
		}
	}
	all.Made = made.figures()
	all.writeMarkdown(os.Stdout)
	return report.WriteJSON(cfg.json, all)
}

// idleFigures measures a new node: before the types are used, and after.
func idleFigures(
	ctx context.Context, r *rig.Rig, cfg idleConfig, types *rig.ManyTypes, n int,
) (report.Figures, error) {
	all, err := whileIdle(ctx, r, cfg, "unused", "")
	if err != nil {
		return nil, err
	}
	all.Add("start", "Start of the node", "s", r.Nodes[0].Took.Seconds())
	if err := useAll(ctx, types, n); err != nil {
		return nil, err
	}
	used, err := whileIdle(ctx, r, cfg, "used", ", each had a task")
	return append(all, used...), err
}

// useAll submits a task of each type. The tasks stay where they are: their stages are without an
// endpoint.
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
	if !sleep.For(ctx, cfg.settle) {
		return nil, ctx.Err()
	}
	if _, err := r.DB.Conn.Exec(ctx, `SELECT pg_stat_statements_reset()`); err != nil {
		return nil, err
	}
	before, err := r.Usage()
	if err != nil {
		return nil, err
	}
	if !sleep.For(ctx, cfg.idle) {
		return nil, ctx.Err()
	}
	after, err := readIdle(ctx, r)
	used, idle := after.Since(before), cfg.idle.Seconds()
	cpu := func(d time.Duration) float64 { return 100 * d.Seconds() / idle }
	all.Add(key+"_cpu_node", "CPU of the node"+name, "% of a core", cpu(used.Node))
	all.Add(key+"_cpu_postgres", "CPU of Postgres"+name, "% of a core", cpu(used.Postgres))
	all.Add(key+"_cpu", "CPU of both"+name, "% of a core", cpu(used.Node+used.Postgres))
	all.Add(key+"_statements", "Statements"+name, "a second",
		float64(after.statements)/idle)
	all.Add(key+"_memory_node", "Memory of the node"+name, "MB", after.memory)
	all.Add(key+"_pss_postgres", "Memory of the node's connections (PSS)"+name, "MB", after.pss)
	all.Add(key+"_shared_postgres", "Their part of the shared buffers in that"+name, "MB",
		after.shared)
	all.Add(key+"_memory_postgres", "Private memory of the node's connections"+name, "MB",
		after.private)
	all.Add(key+"_connections", "Connections of the node"+name, "", after.connections)
	return all, err
}

// idleReading is what was used until now, the statements since they were reset, and what is in use.
type idleReading struct {
	rig.Usage
	statements                                int64
	memory, pss, shared, private, connections float64 // MB, but for the connections
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
		now.pss += machine.ProportionalMemory(pid)
		now.shared += machine.ProportionalShared(pid)
		now.private += machine.PrivateMemory(pid)
		now.connections++
	}
	now.memory = machine.ResidentMemory(r.Nodes[0].PID())
	return now, rows.Err()
}
