package governance

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/asyncflow/asyncflow/store"
)

// Config says when the jobs run, as cron specs.
type Config struct {
	Rescue     string // "": every 3 s
	Promote    string // "": every 10 s
	Vacuum     string // "": every 2 s
	Operations string // "": every second
	Expire     string // "": every minute
	Fold       string // "": every minute
	Forget     string // "": every hour

	Log *slog.Logger
}

// Governor runs the jobs.
type Governor struct {
	store *store.Store
	log   *slog.Logger
	jobs  []Job

	attention *attention
	folded    sync.Map // of tenant to store.Unfolded, where a fold found nothing to do
}

// Job is something to be done now and then. Run may be called by hand at any time,
// also while another node does the same; it returns how many rows it moved.
type Job struct {
	Name string
	Spec string // when, as cron has it
	Run  func(ctx context.Context) (int, error)
}

// New returns a governor of everything in the store.
func New(s *store.Store, cfg Config) *Governor {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	g := &Governor{store: s, log: cfg.Log, attention: newAttention(s)}
	g.jobs = []Job{
		{"rescue", or(cfg.Rescue, "@every 3s"), g.rescue},
		{"promote", or(cfg.Promote, "@every 10s"), g.promote},
		{"vacuum", or(cfg.Vacuum, "@every 2s"), s.Vacuum},
		{"operations", or(cfg.Operations, "@every 1s"), g.operations},
		{"expire-keys", or(cfg.Expire, "@every 1m"), g.expireKeys},
		{"fold", or(cfg.Fold, "@every 1m"), g.fold},
		{"forget", or(cfg.Forget, "@every 1h"), g.forget},
	}
	return g
}

func or(spec, standard string) string {
	if spec == "" {
		return standard
	}
	return spec
}

// Jobs returns all jobs.
func (g *Governor) Jobs() []Job { return g.jobs }

// level returns at which level a run that moved rows is logged: vacuums and folds
// are everyday business.
func (j Job) level() slog.Level {
	if j.Name == "vacuum" || j.Name == "fold" {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// jobTimeout bounds one run of a job.
const jobTimeout = 5 * time.Minute

// Run runs the jobs by their specs until ctx ends. A job that panics is logged
// and runs again; one that is still running is skipped.
func (g *Governor) Run(ctx context.Context) error {
	logger := cronLogger{g.log}
	c := cron.New(cron.WithLocation(time.UTC), cron.WithLogger(logger),
		cron.WithChain(cron.SkipIfStillRunning(logger), cron.Recover(logger)))
	for _, job := range g.jobs {
		if _, err := c.AddFunc(job.Spec, func() { g.runJob(ctx, job) }); err != nil {
			return fmt.Errorf("the schedule %q of job %s: %w", job.Spec, job.Name, err)
		}
	}
	c.Start()
	<-ctx.Done()
	<-c.Stop().Done()
	return nil
}

func (g *Governor) runJob(ctx context.Context, job Job) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	start := time.Now()
	n, err := job.Run(ctx)
	switch {
	case err != nil && ctx.Err() == nil:
		g.log.Warn("job failed; it will run again", "job", job.Name, "error", err)
	case n > 0:
		g.log.Log(ctx, job.level(), "job", "job", job.Name, "rows", n, "duration", time.Since(start).Round(time.Millisecond))
	}
}

// cronLogger takes cron's own messages; its Info is chatter.
type cronLogger struct{ log *slog.Logger }

func (l cronLogger) Info(msg string, args ...any) { l.log.Debug("cron: "+msg, args...) }
func (l cronLogger) Error(err error, msg string, args ...any) {
	l.log.Error("cron: "+msg, append(args, "error", err)...)
}
