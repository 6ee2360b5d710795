package governance

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Config configures the jobs.
type Config struct {
	// Timetable holds the jobs' times: cron specs by job, in UTC, or Off. A job that isn't named
	// keeps its own.
	Timetable map[string]string
	// AuditRetention is how long the job forget keeps entries of the audit; 0: for ever.
	AuditRetention time.Duration

	Log *slog.Logger
}

// Governor runs the jobs.
type Governor struct {
	*shared
	standard *standardJobs
	jobs     []Job // the standard jobs, with this node's times
}

// Committer submits the tasks of schedules and the notices of alerts, and begins tasks that waited
// for others.
type Committer interface {
	// Submit submits tasks of a tenant, and returns a result for each in the same order.
	Submit(ctx context.Context, tenant string, tasks []asyncflow.NewTask) []store.Submitted
	// SubmitNotice submits a task of asyncflow itself, whatever the tenant's quotas.
	SubmitNotice(ctx context.Context, tenant string, task asyncflow.NewTask) store.Submitted
	// SweepFollowUps does some of what a tenant's transactions left to do. It returns how many rows
	// it found, and reports whether there may be more.
	SweepFollowUps(ctx context.Context, tenant string) (n int, more bool, err error)
}

// New returns a governor for everything in the store. An invalid timetable is CodeInvalid.
func New(s *store.Store, committer Committer, cfg Config) (*Governor, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	shared := newShared(s, cfg.Log)
	standard := newStandardJobs(shared, committer, cfg.AuditRetention)
	g := &Governor{shared: shared, standard: standard, jobs: standard.list()}
	return g, setTimes(g.jobs, cfg.Timetable)
}

// ByHand makes a governor for a process that only runs jobs by hand. Such a process moved no rows
// itself, so its vacuum takes the tables of every set.
func (g *Governor) ByHand() *Governor {
	g.standard.vacuum.every = true
	return g
}

// Job returns a job by name, or CodeInvalid if there is none.
func (g *Governor) Job(name string) (Job, error) {
	for _, job := range g.jobs {
		if job.Name == name {
			return job, nil
		}
	}
	return Job{}, asyncflow.InvalidField("job", "is %q; the jobs are %s", name, names(g.jobs))
}

// Run runs the jobs by the timetable until ctx ends. A job that panics is logged and runs again.
// A job that is still running isn't begun again.
func (g *Governor) Run(ctx context.Context) error {
	ctx = store.Direct(ctx)
	g.announce(ctx)
	g.tokens.share(tokensEvery)
	g.lifetimes.share(tokensEvery)
	g.standard.roll.rests.setLongestQuiet(longestQuietRolls)
	g.plans.share(plansEvery)
	g.follows.share(followsEvery)
	logger := cronLogger{g.log}
	c := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(logger),
		cron.WithChain(cron.SkipIfStillRunning(logger), cron.Recover(logger)))
	for _, job := range g.jobs {
		if job.Spec == Off {
			g.log.Info("a job is off on this node", "job", job.Name)
			continue
		}
		r := &runner{Governor: g, job: job}
		if _, err := c.AddFunc(job.Spec, func() { r.run(ctx) }); err != nil {
			return fmt.Errorf("the times %q of job %s: %w", job.Spec, job.Name, err)
		}
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

// announceTime bounds how long the start waits for a database that doesn't answer.
const announceTime = 5 * time.Second

// announce records the timetable of this node in the database.
func (g *Governor) announce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, announceTime)
	defer cancel()
	specs := map[string]string{}
	for _, job := range g.jobs {
		specs[job.Name] = job.Spec
	}
	if err := g.store.ScheduleJobs(ctx, specs); err != nil && ctx.Err() == nil {
		g.log.Warn("can't write down when the jobs run", "error", err)
	}
}

// cronLogger logs cron's own messages, except the ones at Info: nobody needs them.
type cronLogger struct{ log *slog.Logger }

func (l cronLogger) Info(msg string, args ...any) { l.log.Debug("cron: "+msg, args...) }
func (l cronLogger) Error(err error, msg string, args ...any) {
	l.log.Error("cron: "+msg, append(args, "error", err)...)
}
