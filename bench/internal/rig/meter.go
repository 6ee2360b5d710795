package rig

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/asyncflow/asyncflow/bench/internal/machine"
	"github.com/asyncflow/asyncflow/bench/internal/report"
	"github.com/asyncflow/asyncflow/bench/internal/worker"
)

// Usage is the CPU time that each process used.
type Usage struct{ Node, Postgres, Worker, Client time.Duration }

// Usage returns the CPU time that was used until now: that of Postgres with all its processes,
// that of the nodes together. The client is this process.
func (r *Rig) Usage() (u Usage, err error) {
	for _, n := range r.Nodes {
		own, err := machine.CPU(n.PID())
		if err != nil {
			return u, err
		}
		u.Node += own
	}
	if u.Postgres, err = machine.CPUOfFamily(r.postgres.PID()); err != nil {
		return u, err
	}
	if u.Worker, err = machine.CPU(r.worker.PID()); err != nil {
		return u, err
	}
	u.Client, err = machine.CPU(os.Getpid())
	return u, err
}

// Since returns what was used after an earlier time.
func (u Usage) Since(before Usage) Usage {
	return Usage{
		Node:     u.Node - before.Node,
		Postgres: u.Postgres - before.Postgres,
		Worker:   u.Worker - before.Worker,
		Client:   u.Client - before.Client,
	}
}

func (u Usage) sum() time.Duration { return u.Node + u.Postgres + u.Worker + u.Client }

// Micros returns a time for each of n, in microseconds.
func Micros(d time.Duration, n int) float64 { return d.Seconds() * 1e6 / float64(n) }

// Reading is all counters at one time.
type Reading struct {
	Usage
	Written
	worker.Counts
	At time.Time
}

// Read reads all counters.
func (r *Rig) Read(ctx context.Context) (now Reading, err error) {
	if now.Written, err = r.DB.Written(ctx); err != nil {
		return now, err
	}
	if now.Counts, err = r.WorkerCounts(ctx); err != nil {
		return now, err
	}
	now.Usage, err = r.Usage()
	now.At = time.Now()
	return now, err
}

// Meter measures what something costs, from its start on.
type Meter struct {
	Before Reading
	rig    *Rig
}

// StartMeter starts a meter, after a checkpoint.
func (r *Rig) StartMeter(ctx context.Context) (m Meter, err error) {
	if err = r.DB.Checkpoint(ctx); err != nil {
		return m, err
	}
	m.rig = r
	m.Before, err = r.Read(ctx)
	return m, err
}

// Stop returns what was used since the start.
func (m Meter) Stop(ctx context.Context) (Cost, error) {
	elapsed := time.Since(m.Before.At)
	after, err := m.rig.Read(ctx)
	return after.CostSince(m.Before, elapsed), err
}

// Cost is what was used and done in a time.
type Cost struct {
	Elapsed time.Duration
	Usage
	Written
	worker.Counts
}

// CostSince returns what was used and done since an earlier reading.
func (r Reading) CostSince(before Reading, elapsed time.Duration) Cost {
	return Cost{
		Elapsed: elapsed,
		Usage:   r.Usage.Since(before.Usage),
		Written: Written{r.WAL - before.WAL, r.Transactions - before.Transactions},
		Counts: worker.Counts{
			Deliveries: r.Deliveries - before.Deliveries,
			Distinct:   r.Distinct - before.Distinct,
		},
	}
}

// Rate returns how many of n were done a second.
func (c Cost) Rate(n int) float64 { return float64(n) / c.Elapsed.Seconds() }

// Figures are what each of the tasks costs: writes, and CPU time where that can be read.
func (c Cost) Figures(tasks int) (all report.Figures) {
	n := float64(tasks)
	all.Add("wal", "WAL", "bytes/task", float64(c.WAL)/n)
	all.Add("transactions", "Writing transactions", "per 1000 tasks",
		1000*float64(c.Transactions)/n)
	return append(all, c.CPUFigures(tasks)...)
}

// CPUFigures are the CPU time that each of the tasks takes; none where that can't be read.
func (c Cost) CPUFigures(tasks int) (all report.Figures) {
	cpu := c.Usage.sum()
	if cpu == 0 {
		return nil
	}
	all.Add("cpu_node", "CPU of the node", "µs/task", Micros(c.Node, tasks))
	all.Add("cpu_postgres", "CPU of Postgres", "µs/task", Micros(c.Postgres, tasks))
	all.Add("cpu_worker", "CPU of the worker", "µs/task", Micros(c.Worker, tasks))
	all.Add("cpu_submitter", "CPU of the submitter", "µs/task", Micros(c.Client, tasks))
	all.Add("cpu_all", "CPU of all four", "µs/task", Micros(cpu, tasks))
	all.Add("cores_busy", "Cores kept busy by them", "cores", cpu.Seconds()/c.Elapsed.Seconds())
	all.Add("cpu_bound", "All cores ÷ CPU of all four", "tasks/s",
		float64(runtime.NumCPU()*tasks)/cpu.Seconds())
	return all
}
