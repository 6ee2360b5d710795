package metrics

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// keep is for how long what was read from the database is shown again; readTime
	// bounds the reading.
	keep     = 10 * time.Second
	readTime = 5 * time.Second
	// maxFiring is the most episodes of alerts with series of their own.
	maxFiring = 500
)

// database tells how the tasks, jobs, nodes and alerts of the database stand. All nodes
// tell the same.
type database struct {
	store *store.Store
	types *types

	mu   sync.Mutex
	read time.Time
	last []prometheus.Metric
}

func newDatabase(s *store.Store, t *types) *database { return &database{store: s, types: t} }

var (
	databaseUp = desc("database_up", "1 if what follows could be read from the database, else 0.")
	tasksNow   = desc("tasks", "Live tasks by status: waiting, pending, running.", "tenant", "type", "status")
	oldestDue  = desc("oldest_due_seconds", "For how long a task has been due that is not under way, at most; 0 if none is.", "tenant", "type")
	backlogNow = desc("backlog_tasks", "Tasks that are due and not under way, by what they wait for.", "tenant", "type", "waits_for")
	backlogAge = desc("backlog_oldest_due_seconds", "For how long the first of them has been due.", "tenant", "type", "waits_for")
	jobSuccess = desc("job_last_success_timestamp_seconds", "When the last run of a job that ended well began; 0 if none did.", "job")
	jobTook    = desc("job_duration_seconds", "How long the last run of a job took.", "job")
	jobFails   = desc("job_consecutive_failures", "How many runs of a job have failed since one ended well.", "job")
	nodesNow   = desc("nodes", "Nodes by state: alive, gone.", "state")
	firing     = desc("alert_firing", "1 for each episode of an alert that goes on.", "tenant", "alert", "subject")
)

// Describe tells which metrics there are.
func (d *database) Describe(out chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{databaseUp, tasksNow, oldestDue, backlogNow, backlogAge, jobSuccess, jobTook, jobFails, nodesNow, firing} {
		out <- one
	}
}

// Collect reads them, unless they were read a moment ago. Those who ask meanwhile wait.
func (d *database) Collect(out chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read.IsZero() || time.Since(d.read) >= keep {
		d.last, d.read = d.readAll(), time.Now()
	}
	for _, m := range d.last {
		out <- m
	}
}

func (d *database) readAll() []prometheus.Metric {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	tasks, err := d.readTasks(ctx)
	above, err2 := d.readGovernance(ctx)
	alerts, err3 := d.readAlerts(ctx)
	up := 1.0
	if errors.Join(err, err2, err3) != nil {
		up = 0
	}
	return append(append(append(tasks, above...), alerts...), gauge(databaseUp, up))
}

// sums are the figures of one type, or of all those that share labels.
type sums struct {
	waiting, pending, running int64
	oldest                    time.Duration
	backlog                   map[asyncflow.WaitReason]*backlogSums
}

type backlogSums struct {
	tasks  int64
	oldest time.Duration
}

func (d *database) readTasks(ctx context.Context) (all []prometheus.Metric, err error) {
	byLabel := map[*typeMeter]*sums{}
	for tenant := range d.store.Catalog.Tenants() {
		stats, err := d.store.Stats(ctx, tenant, "")
		if err != nil {
			return nil, err
		}
		now := d.store.Clock.Now()
		for _, s := range stats {
			m := d.types.meter(store.TypeKey{Tenant: tenant, Type: s.Type})
			if byLabel[m] == nil {
				byLabel[m] = &sums{backlog: map[asyncflow.WaitReason]*backlogSums{}}
			}
			byLabel[m].add(s, now)
		}
	}
	for m, s := range byLabel {
		all = append(all, gauge(tasksNow, float64(s.waiting), m.tenant, m.name, "waiting"), gauge(tasksNow, float64(s.pending), m.tenant, m.name, "pending"),
			gauge(tasksNow, float64(s.running), m.tenant, m.name, "running"), gauge(oldestDue, s.oldest.Seconds(), m.tenant, m.name))
		for why, b := range s.backlog {
			all = append(all, gauge(backlogNow, float64(b.tasks), m.tenant, m.name, string(why)), gauge(backlogAge, b.oldest.Seconds(), m.tenant, m.name, string(why)))
		}
	}
	return all, nil
}

func (s *sums) add(more store.Stats, now time.Time) {
	s.waiting, s.pending, s.running = s.waiting+more.Waiting, s.pending+more.Pending, s.running+more.Running
	if !more.OldestDue.IsZero() {
		s.oldest = max(s.oldest, now.Sub(more.OldestDue))
	}
	for _, b := range more.Backlog {
		if s.backlog[b.WaitsFor] == nil {
			s.backlog[b.WaitsFor] = &backlogSums{}
		}
		same := s.backlog[b.WaitsFor]
		same.tasks, same.oldest = same.tasks+b.Tasks, max(same.oldest, now.Sub(b.Oldest))
	}
}

func (d *database) readGovernance(ctx context.Context) (all []prometheus.Metric, err error) {
	status, err := governance.ReadStatus(ctx, d.store)
	if err != nil {
		return nil, err
	}
	for _, job := range status.Jobs {
		succeeded := 0.0
		if !job.Succeeded.IsZero() {
			succeeded = float64(job.Succeeded.UnixMilli()) / 1000
		}
		all = append(all, gauge(jobSuccess, succeeded, job.Name), gauge(jobTook, job.Duration.Seconds(), job.Name), gauge(jobFails, float64(job.Failures), job.Name))
	}
	alive, gone := 0, 0
	for _, n := range status.Nodes {
		if n.Gone {
			gone++
		} else {
			alive++
		}
	}
	return append(all, gauge(nodesNow, float64(alive), "alive"), gauge(nodesNow, float64(gone), "gone")), nil
}

func (d *database) readAlerts(ctx context.Context) (all []prometheus.Metric, err error) {
	for tenant, types := range d.store.Catalog.Tenants() {
		if types[asyncflow.AlertType] == nil {
			continue
		}
		episodes, err := d.store.Episodes(ctx, tenant)
		if err != nil {
			return nil, err
		}
		for _, e := range episodes {
			if e.Resolved.IsZero() && len(all) < maxFiring {
				all = append(all, gauge(firing, 1, tenant, string(e.Alert), e.Subject))
			}
		}
	}
	return all, nil
}
