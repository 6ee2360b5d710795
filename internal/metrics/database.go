package metrics

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/store"
)

const (
	keep      = 10 * time.Second // how long figures from the database are cached
	readTime  = 5 * time.Second  // bounds one reading of all figures
	maxFiring = 500              // the most episodes of alerts with series of their own
)

// database collects the figures of the tasks, jobs, nodes and alerts in the database. They are the
// same on all nodes.
type database struct {
	store *store.Store
	types *types

	mu    sync.Mutex
	read  time.Time
	last  []prometheus.Metric
	quiet quietTenants
}

func newDatabase(s *store.Store, t *types) *database {
	return &database{store: s, types: t, quiet: newQuietTenants()}
}

// jobLabel is for the name of a background job. Prometheus itself gives every series a label "job",
// with the name of the scrape configuration.
const jobLabel = "background_job"

var (
	databaseUp = desc("database_up", "1 if the database could be read, else 0.")
	unread     = desc("unread_tenants",
		"Tenants whose tasks or alerts could not be read in time; their series are missing.")
	tasksNow = desc("tasks", "Live tasks by status: waiting, pending, running.", "tenant", "type",
		"status")
	oldestDue = desc("oldest_due_seconds",
		"How long the oldest due task that is not under way has been due; 0 if none is.", "tenant",
		"type")
	backlogNow = desc("backlog_tasks",
		"Tasks that are due and not under way, by what they wait for.", "tenant", "type",
		"waits_for")
	backlogAge = desc("backlog_oldest_due_seconds",
		"How long the oldest of the tasks in asyncflow_backlog_tasks has been due.", "tenant",
		"type",
		"waits_for")
	jobSuccess = desc("job_last_success_timestamp_seconds",
		"When the last successful run of a job began; 0 if there was none.", jobLabel)
	jobTook = desc("job_duration_seconds", "How long the last run of a job took.",
		jobLabel)
	jobFails = desc("job_consecutive_failures",
		"How many runs of a job have failed since the last successful one.", jobLabel)
	jobLate = desc("job_overdue_seconds",
		"How long ago a job should have succeeded by its times; 0 if it isn't late. "+
			"Jobs that are off have none.", jobLabel)
	nodesNow = desc("nodes", "Nodes by state: alive, gone.", "state")
	overdue  = desc("contents_overdue_seconds",
		"How long contents have been due to be erased; 0 if none are.", "tenant")
	firing = desc("alert_firing", "1 for each ongoing episode of an alert.", "tenant", "alert",
		"subject")
)

// Describe lists the metrics.
func (d *database) Describe(out chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{databaseUp, unread, tasksNow, oldestDue, backlogNow,
		backlogAge, jobSuccess, jobTook, jobFails, jobLate,
		nodesNow, overdue, firing} {
		out <- one
	}
}

// Collect reads the figures, unless they are cached. Concurrent callers wait for one reading.
func (d *database) Collect(out chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.read.IsZero() || time.Since(d.read) >= keep {
		d.last = d.readAll()
		d.read = time.Now()
	}
	for _, m := range d.last {
		out <- m
	}
}

// readAll reads the parts at the same time: one that fails, or takes long, leaves the others.
func (d *database) readAll() []prometheus.Metric {
	ctx, cancel := context.WithTimeout(context.Background(), readTime)
	defer cancel()
	var tasks, above, alerts, contents part
	var all sync.WaitGroup
	all.Go(func() { tasks = d.readTasks(ctx) })
	all.Go(func() { above = d.readGovernance(ctx) })
	all.Go(func() { alerts = d.readAlerts(ctx) })
	all.Go(func() { contents = d.readContents(ctx) })
	all.Wait()
	up := 1.0
	if errors.Join(tasks.err, above.err, alerts.err) != nil {
		up = 0
	}
	missing := max(tasks.unread, alerts.unread, contents.unread)
	return append(slices.Concat(tasks.metrics, above.metrics, alerts.metrics, contents.metrics),
		gauge(databaseUp, up), gauge(unread, float64(missing)))
}

// part is what was read of one kind of figures.
type part struct {
	metrics []prometheus.Metric
	unread  int   // tenants with figures that could not be read
	err     error // nothing could be read
}

// sums are the figures of one type, or of all types that share labels.
type sums struct {
	waiting, pending, running int64
	oldest                    time.Duration
	backlog                   map[asyncflow.WaitReason]*backlogSums
}

type backlogSums struct {
	tasks  int64
	oldest time.Duration
}

func (d *database) readTasks(ctx context.Context) (p part) {
	byLabel := map[*typeMeter]*sums{}
	p.unread, p.err = d.quiet.read(ctx, d.store, func(tenant string, stats []store.Stats) {
		now := d.store.Clock.Now()
		for _, s := range stats {
			m := d.types.meter(store.TypeKey{Tenant: tenant, Type: s.Type}, isLive(s))
			if byLabel[m] == nil {
				byLabel[m] = &sums{backlog: map[asyncflow.WaitReason]*backlogSums{}}
			}
			byLabel[m].add(s, now)
		}
	})
	for m, s := range byLabel {
		p.metrics = append(p.metrics,
			gauge(tasksNow, float64(s.waiting), m.tenant, m.name, "waiting"),
			gauge(tasksNow, float64(s.pending), m.tenant, m.name, "pending"),
			gauge(tasksNow, float64(s.running), m.tenant, m.name, "running"),
			gauge(oldestDue, s.oldest.Seconds(), m.tenant, m.name))
		for why, b := range s.backlog {
			p.metrics = append(p.metrics,
				gauge(backlogNow, float64(b.tasks), m.tenant, m.name, string(why)),
				gauge(backlogAge, b.oldest.Seconds(), m.tenant, m.name, string(why)))
		}
	}
	return p
}

func (s *sums) add(more store.Stats, now time.Time) {
	s.waiting += more.Waiting
	s.pending += more.Pending
	s.running += more.Running
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

func (d *database) readGovernance(ctx context.Context) part {
	var all []prometheus.Metric
	status, err := governance.ReadStatus(ctx, d.store)
	if err != nil {
		return part{err: err}
	}
	now := d.store.Clock.Now()
	for _, job := range status.Jobs {
		if late, known := status.Late(job, now); known {
			all = append(all, gauge(jobLate, max(0, late).Seconds(), job.Name))
		}
		succeeded := 0.0
		if !job.Succeeded.IsZero() {
			succeeded = float64(job.Succeeded.UnixMilli()) / 1000
		}
		all = append(all, gauge(jobSuccess, succeeded, job.Name),
			gauge(jobTook, job.Duration.Seconds(), job.Name),
			gauge(jobFails, float64(job.Failures), job.Name))
	}
	alive, gone := 0, 0
	for _, n := range status.Nodes {
		if n.Gone {
			gone++
		} else {
			alive++
		}
	}
	return part{metrics: append(all, gauge(nodesNow, float64(alive), "alive"),
		gauge(nodesNow, float64(gone), "gone"))}
}

// readContents reads how late the erasure of contents is, of up to maxFiring tenants in which types
// ask for it.
func (d *database) readContents(ctx context.Context) (p part) {
	for tenant := range d.store.Catalog.Tenants() {
		if len(d.store.AgingTypes(tenant)) == 0 || len(p.metrics) == maxFiring {
			continue
		}
		late, err := d.readOverdue(ctx, tenant)
		if err != nil {
			p.unread++
			continue
		}
		p.metrics = append(p.metrics, gauge(overdue, late.Seconds(), tenant))
	}
	return p
}

func (d *database) readOverdue(ctx context.Context, tenant string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, tenantTime)
	defer cancel()
	return d.store.OverdueContents(ctx, tenant)
}

// readAlerts reads the ongoing episodes. If there are too many, each tenant gets as many series as
// the others, or all of its episodes.
func (d *database) readAlerts(ctx context.Context) (p part) {
	var byTenant [][]prometheus.Metric
	for tenant, types := range d.store.Catalog.Tenants() {
		if types[asyncflow.AlertType] == nil {
			continue
		}
		ongoing, err := d.readEpisodes(ctx, tenant)
		if err != nil {
			p.unread++
			continue
		}
		byTenant = append(byTenant, ongoing)
	}
	for i := 0; len(p.metrics) < maxFiring; i++ {
		before := len(p.metrics)
		for _, ongoing := range byTenant {
			if i < len(ongoing) && len(p.metrics) < maxFiring {
				p.metrics = append(p.metrics, ongoing[i])
			}
		}
		if len(p.metrics) == before {
			break
		}
	}
	return p
}

func (d *database) readEpisodes(
	ctx context.Context, tenant string,
) (ongoing []prometheus.Metric, err error) {
	ctx, cancel := context.WithTimeout(ctx, tenantTime)
	defer cancel()
	episodes, err := d.store.Episodes(ctx, tenant)
	for _, e := range episodes {
		if e.Resolved.IsZero() && len(ongoing) < maxFiring {
			ongoing = append(ongoing, gauge(firing, 1, tenant, string(e.Alert), e.Subject))
		}
	}
	return ongoing, err
}

// poolCollector collects the metrics of the connection pools.
type poolCollector struct{ store *store.Store }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("asyncflow_"+name, help, labels, nil)
}

var (
	poolConnections = desc("pool_connections", "Connections to Postgres by state: idle, in_use.",
		"pool", "state")
	poolMost     = desc("pool_connections_max", "The most connections of a pool.", "pool")
	poolAcquires = desc("pool_acquires_total", "Connections that were asked for and acquired.",
		"pool")
	poolWaits    = desc("pool_waits_total", "Acquires that had to wait for a connection.", "pool")
	poolWaitTime = desc("pool_acquire_seconds_total", "The total time of all acquires.", "pool")
)

// Describe lists the metrics.
func (c *poolCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolConnections, poolMost, poolAcquires, poolWaits,
		poolWaitTime} {
		out <- d
	}
}

// Collect reads the metrics.
func (c *poolCollector) Collect(out chan<- prometheus.Metric) {
	for _, p := range c.store.PoolStats() {
		out <- gauge(poolConnections, float64(p.Idle), p.Name, "idle")
		out <- gauge(poolConnections, float64(p.InUse), p.Name, "in_use")
		out <- gauge(poolMost, float64(p.Most), p.Name)
		out <- counter(poolAcquires, float64(p.Acquires), p.Name)
		out <- counter(poolWaits, float64(p.Waits), p.Name)
		out <- counter(poolWaitTime, p.WaitSeconds, p.Name)
	}
}

func gauge(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func counter(d *prometheus.Desc, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, value, labels...)
}
