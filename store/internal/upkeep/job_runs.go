package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// JobRun is the last recorded run of a background job.
type JobRun struct {
	Name     string
	Spec     string // when it runs, in the syntax of cron
	Node     string // that ran it; "" if none did
	Started  time.Time
	Duration time.Duration
	Rows     int
	Error    string // why it failed; "": it succeeded
	// Failures counts the runs that failed since the last one that succeeded.
	Failures  int
	Succeeded time.Time // when the last run that succeeded began
}

// Idle reports whether the run had nothing to do.
func (r JobRun) Idle() bool { return r.Rows == 0 && r.Error == "" }

// IdleEvery is how often all nodes together record a run that had nothing to do.
const IdleEvery = time.Minute

// ScheduleJobs records when the jobs run, by name.
func (s *Upkeep) ScheduleJobs(ctx context.Context, specs map[string]string) error {
	names := make([]string, 0, len(specs))
	texts := make([]string, 0, len(specs))
	for name, spec := range specs {
		names = append(names, name)
		texts = append(texts, spec)
	}
	_, err := s.core.DB("").Exec(ctx, `
		INSERT INTO asyncflow.jobs AS j (name, spec) SELECT *
		  FROM unnest($1::text[], $2::text[]) AS u (name, spec) ORDER BY name
		ON CONFLICT (name) DO UPDATE SET spec = excluded.spec
		  WHERE j.spec <> excluded.spec`, names, texts)
	return postgres.Wrap(err, "ScheduleJobs")
}

// RecordJob records a run of this node. failures counts the runs that failed since the last
// recorded one. A newer run of another node stays. A run younger than IdleEvery also stays if
// this one had nothing to do, unless it had failed.
func (s *Upkeep) RecordJob(ctx context.Context, r JobRun, failures int) error {
	var succeeded *time.Time
	if r.Error == "" {
		succeeded = &r.Started
	}
	_, err := s.core.DB("").Exec(ctx, `
		INSERT INTO asyncflow.jobs AS j (name, spec, node, started_at, duration, rows, error,
		  failures,
		    succeeded_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
		ON CONFLICT (name) DO UPDATE SET node = $3, started_at = $4, duration = $5, rows = $6,
		  error = $7,
		  failures = CASE WHEN $7::text IS NULL THEN 0
		    ELSE least(j.failures, 1000000000) + $8 END, succeeded_at = coalesce($9, j.succeeded_at)
		WHERE j.started_at IS NULL OR j.started_at <= $10 OR j.error IS NOT NULL
		  AND j.started_at <= $4`,
		r.Name, r.Spec, s.core.Config.Node, r.Started, r.Duration.Seconds(), r.Rows,
		postgres.OrNull(r.Error), failures, succeeded, r.supersedes())
	return postgres.Wrap(err, "RecordJob(%q)", r.Name)
}

// supersedes returns the time up to which this run replaces other runs.
func (r JobRun) supersedes() time.Time {
	if r.Idle() {
		return r.Started.Add(-IdleEvery)
	}
	return r.Started
}

// Jobs returns the last runs by name.
func (s *Upkeep) Jobs(ctx context.Context) ([]JobRun, error) {
	rows, _ := s.core.Base.Query(ctx,
		`SELECT name, spec, coalesce(node, ''), started_at, coalesce(duration, 0), rows,
			coalesce(error, ''), failures, succeeded_at
		FROM asyncflow.jobs ORDER BY name`)
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r JobRun, err error) {
		var started, succeeded *time.Time
		var seconds float64
		err = row.Scan(&r.Name, &r.Spec, &r.Node, &started, &seconds, &r.Rows, &r.Error,
			&r.Failures, &succeeded)
		r.Started, r.Succeeded, r.Duration = postgres.OrZero(started), postgres.OrZero(succeeded),
			time.Duration(seconds*float64(time.Second)).Round(time.Microsecond)
		return r, err
	})
	return all, postgres.Wrap(err, "Jobs")
}
