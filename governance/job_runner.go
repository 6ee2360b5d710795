package governance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// jobTimeout bounds one run of a job.
const jobTimeout = 5 * time.Minute

const (
	// recordEvery is the least time between two records of a job on this node; recordTime
	// bounds the write of one.
	recordEvery = 5 * time.Second
	recordTime  = 5 * time.Second
)

// runner runs one job repeatedly, never twice at once, and keeps the run to be recorded next.
type runner struct {
	*Governor
	job Job

	recorded time.Time     // the time of the last record
	pending  *store.JobRun // the run to be recorded next
	failures int           // failed runs since the last record
	failed   bool          // the last run failed
}

// run runs the job once, logs the result, and records it if note decides so.
func (r *runner) run(ctx context.Context) {
	run, err := r.do(ctx, r.job)
	switch {
	case ctx.Err() != nil: // the node is stopping
		return
	case err != nil:
		r.log.Warn("job failed; it will run again", "job", r.job.Name, "error", err)
	case run.Rows > 0:
		r.log.Log(ctx, r.job.level(), "job", "job", r.job.Name, "rows", run.Rows,
			"duration", run.Duration.Round(time.Millisecond))
	}
	r.note(run)
	if r.pending != nil && time.Since(r.recorded) >= recordEvery {
		r.record()
	}
}

// note decides whether to record a run: always if it moved rows, failed, or succeeded after a
// failure; otherwise once in store.IdleEvery.
func (r *runner) note(run store.JobRun) {
	fails := run.Error != ""
	worth := !run.Idle() || r.failed ||
		time.Since(r.recorded) >= store.IdleEvery && r.pending == nil
	if r.failed = fails; fails {
		r.failures++
	}
	if worth {
		r.pending = &run
	}
}

func (r *runner) record() {
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	if err := r.store.RecordJob(ctx, *r.pending, r.failures); err != nil {
		r.log.Warn("can't record the run of a job", "job", r.job.Name, "error", err)
		return
	}
	r.recorded, r.pending, r.failures = time.Now(), nil, 0
}

// do runs a job once.
func (g *Governor) do(ctx context.Context, job Job) (store.JobRun, error) {
	ctx, cancel := context.WithTimeout(ctx, jobTimeout)
	defer cancel()
	run := store.JobRun{Name: job.Name, Spec: job.Spec, Started: g.store.Clock.Now()}
	start := time.Now()
	var err error
	run.Rows, err = g.recovering(job.Name, func() (int, error) { return job.Run(ctx) })
	run.Duration = time.Since(start)
	if err != nil {
		run.Error = err.Error()
	}
	return run, err
}

// recovering calls do, and logs a panic and turns it into an error.
func (s *shared) recovering(job string, do func() (int, error)) (n int, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("a job panicked", "job", job, "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("it panicked: %v", p)
		}
	}()
	return do()
}

// RunByHand runs a job once, now, and records it.
func (g *Governor) RunByHand(ctx context.Context, job Job) (store.JobRun, error) {
	run, err := g.do(ctx, job)
	if ctx.Err() != nil {
		return run, err
	}
	r := runner{Governor: g, job: job}
	r.note(run)
	r.record()
	return run, err
}

// dryRunTypes calls count for each type of each tenant and returns the rows that a job would move.
func (s *shared) dryRunTypes(
	ctx context.Context, count func(store.Overview) (int, error),
) ([]store.Due, error) {
	var all []store.Due
	_, err := s.everyType(ctx, func(o store.Overview) (int, error) {
		n, err := count(o)
		all = append(all, store.Due{Tenant: o.Type.Tenant, Type: o.Type.Name, Rows: n})
		return n, err
	})
	return withoutEmpty(all), err
}

// dryRunTenants calls count for each tenant and returns the rows that a job would move.
func (s *shared) dryRunTenants(
	count func(tenant string) ([]store.Due, error),
) ([]store.Due, error) {
	var all []store.Due
	var errs []error
	for tenant := range s.store.Catalog.Tenants() {
		due, err := count(tenant)
		all = append(all, due...)
		errs = append(errs, err)
	}
	return withoutEmpty(all), errors.Join(errs...)
}

// withoutEmpty drops entries without rows, and sorts by tenant.
func withoutEmpty(all []store.Due) []store.Due {
	slices.SortStableFunc(all, func(a, b store.Due) int {
		return strings.Compare(a.Tenant, b.Tenant)
	})
	return slices.DeleteFunc(all, func(d store.Due) bool { return d.Rows == 0 })
}

// eachType calls do for each type of each tenant that attention picks, and adds up the rows. A
// type that stays busy is visited again after every. One type's failure doesn't stop the others.
func (s *shared) eachType(
	ctx context.Context, every time.Duration, do func(store.Overview) (int, error),
) (int, error) {
	tokens, err := s.tokens.read(ctx, s.store)
	if err != nil {
		return 0, err
	}
	var sum int
	var errs []error
	for tenant, types := range s.store.Catalog.Tenants() {
		overviews, err := s.overviews(ctx, tenant, types, tokens[tenant], every)
		n, err2 := eachOverview(overviews, do)
		sum += n
		errs = append(errs, err, err2)
	}
	return sum, errors.Join(errs...)
}

// everyType is eachType for all types, whether or not there is something to do in them.
func (s *shared) everyType(ctx context.Context, do func(store.Overview) (int, error)) (int, error) {
	var sum int
	var errs []error
	for tenant, types := range s.store.Catalog.Tenants() {
		overviews, err := s.store.Overviews(ctx, tenant, slices.Collect(maps.Keys(types)))
		n, err2 := eachOverview(overviews, do)
		sum += n
		errs = append(errs, err, err2)
	}
	return sum, errors.Join(errs...)
}

func eachOverview(
	overviews []store.Overview, do func(store.Overview) (int, error),
) (sum int, err error) {
	var errs []error
	for _, o := range overviews {
		n, err := do(o)
		sum += n
		errs = append(errs, err)
	}
	return sum, errors.Join(errs...)
}

// untilDone repeats a step while it moves a full batch of rows, and adds up the rows.
func untilDone(step func() (int, error)) (int, error) {
	var sum int
	for {
		n, err := step()
		sum += n
		if err != nil || n < store.JobBatch {
			return sum, err
		}
	}
}
