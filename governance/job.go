package governance

import (
	"context"
	"log/slog"
	"time"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// Job is a background job. Its functions may be called by hand at any time, even while another
// node runs the same job.
type Job struct {
	Name string
	Spec string // its times, as a cron spec, or Off
	// Run runs the job once and returns how many rows it moved.
	Run func(ctx context.Context) (int, error)
	// DryRun returns how many rows Run would move now, by type, and changes nothing.
	DryRun func(ctx context.Context) ([]store.Due, error)
}

// level returns the log level of a run that moved rows. Vacuums, folds and the history are routine.
func (j Job) level() slog.Level {
	if j.Name == "vacuum" || j.Name == "fold" || j.Name == "history" {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

// standardJobs are the jobs of a node. Each is a struct of its own, in a file of its name: run and
// dryRun, and, where it visits tenants, what wakes it and until when they rest (see visits).
type standardJobs struct {
	rescue       *rescueJob
	promote      *promoteJob
	vacuum       *vacuumJob
	roll         *rollJob
	operations   *operationsJob
	followUp     *followUpJob
	dependencies *dependenciesJob
	children     *childrenJob
	schedules    *schedulesJob
	expireKeys   *expireKeysJob
	fold         *foldJob
	history      *historyJob
	alerts       *alertsJob
	forget       *forgetJob
	dropTenants  *dropTenantsJob
	erase        *eraseJob
	expire       *expireJob
}

func newStandardJobs(s *shared, committer Committer, auditRetention time.Duration) *standardJobs {
	wokenBy := func(tables store.Tables) visits {
		return visits{shared: s, activity: &activity{tables: tables}}
	}
	return &standardJobs{
		rescue:  &rescueJob{s},
		promote: &promoteJob{s},
		vacuum:  &vacuumJob{shared: s},
		roll:    &rollJob{shared: s},
		operations: &operationsJob{visits: visits{shared: s, activity: s.plans},
			committer: committer, turn: operationTurn},
		followUp: &followUpJob{visits: visits{shared: s, activity: s.follows},
			committer: committer},
		dependencies: &dependenciesJob{visits{shared: s, activity: s.follows}},
		children:     &childrenJob{visits{shared: s, activity: s.follows}},
		schedules: &schedulesJob{visits: visits{shared: s, activity: s.plans},
			committer: committer},
		expireKeys:  &expireKeysJob{wokenBy(store.KeyTables)},
		fold:        &foldJob{wokenBy(store.TallyTables)},
		history:     &historyJob{visits: wokenBy(store.HistoryTables)},
		alerts:      &alertsJob{visits: wokenBy(store.AlertTables), committer: committer},
		forget:      &forgetJob{visits: wokenBy(store.RecordTables), retention: auditRetention},
		dropTenants: &dropTenantsJob{s},
		erase:       &eraseJob{shared: s, turn: eraseTurn},
		expire: &expireJob{visits: visits{shared: s, activity: s.lifetimes}, turn: expireTurn,
			round: expireRound, rest: sleep.For},
	}
}

// list returns all jobs with their default times.
func (s *standardJobs) list() []Job {
	return []Job{
		{"rescue", "@every 1s", s.rescue.run, s.rescue.dryRun},
		{"promote", "@every 10s", s.promote.run, s.promote.dryRun},
		{"vacuum", "@every 2s", s.vacuum.run, s.vacuum.dryRun},
		{"roll", "@every 5s", s.roll.run, s.roll.dryRun},
		{"operations", "@every 1s", s.operations.run, s.operations.dryRun},
		{"follow-up", "@every 2s", s.followUp.run, s.followUp.dryRun},
		{"dependencies", "@every 1m", s.dependencies.run, s.dependencies.dryRun},
		{"children", "@every 1m", s.children.run, s.children.dryRun},
		{"schedules", "@every 1s", s.schedules.run, s.schedules.dryRun},
		{"expire-keys", "@every 1m", s.expireKeys.run, s.expireKeys.dryRun},
		{"fold", "@every 1m", s.fold.run, s.fold.dryRun},
		{"history", "@every 1m", s.history.run, s.history.dryRun},
		{"alerts", "@every 15s", s.alerts.run, s.alerts.dryRun},
		{"forget", "@every 10m", s.forget.run, s.forget.dryRun},
		{"drop-tenants", "@every 10s", s.dropTenants.run, s.dropTenants.dryRun},
		{"erase", "@every 5s", s.erase.run, s.erase.dryRun},
		{"expire", "@every 1s", s.expire.run, s.expire.dryRun},
	}
}

// shared is what the jobs of a node share.
type shared struct {
	store     *store.Store
	log       *slog.Logger
	attention *attention

	// What happened in tables that several jobs look after.
	tokens, plans, follows, lifetimes *activity
}

func newShared(s *store.Store, log *slog.Logger) *shared {
	return &shared{
		store:     s,
		log:       log,
		attention: newAttention(s),
		tokens:    &activity{tables: store.TokenTables},
		plans:     &activity{tables: store.PlanTables},
		follows:   &activity{tables: store.FollowUpTables},
		lifetimes: &activity{tables: store.LifetimeTables},
	}
}

// since returns how long ago a time was, by the database's clock.
func (s *shared) since(at time.Time) time.Duration { return s.store.Clock.Now().Sub(at) }
