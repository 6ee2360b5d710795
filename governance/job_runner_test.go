package governance_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

func noDryRun(context.Context) ([]store.Due, error) { return nil, nil }

// start runs the governor with the given jobs until the test ends.
func (b *bundle) start(t *testing.T, jobs ...governance.Job) {
	t.Helper()
	b.gov.SetJobs(jobs...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.gov.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
}

// recorded returns the last recorded run of a job.
func (b *bundle) recorded(t *testing.T, name string) store.JobRun {
	t.Helper()
	runs, err := b.Jobs(t.Context())
	require.NoError(t, err)
	for _, run := range runs {
		if run.Name == name {
			run.Started, run.Succeeded = run.Started.UTC(), run.Succeeded.UTC()
			return run
		}
	}
	return store.JobRun{}
}

// A job that panics is recorded as failed and runs again; other jobs are unaffected.
func TestPanicsAreSurvived(t *testing.T) {
	t.Parallel()
	b := setup(t, pgtest.Database(t, prepare), "a", governance.Config{})
	var panics, runs atomic.Int32
	b.start(t,
		governance.Job{Name: "bad", Spec: "@every 1s", DryRun: noDryRun,
			Run: func(context.Context) (int, error) { panics.Add(1); panic("so bad") }},
		governance.Job{Name: "good", Spec: "@every 1s", DryRun: noDryRun,
			Run: func(context.Context) (int, error) { runs.Add(1); return 3, nil }})
	require.Eventually(t, func() bool { return panics.Load() > 2 && runs.Load() > 2 }, patience,
		10*time.Millisecond)
	require.Eventually(t, func() bool { return b.recorded(t, "good").Rows == 3 }, patience,
		10*time.Millisecond)
	require.Eventually(t, func() bool { return b.recorded(t, "bad").Failures > 2 }, patience,
		10*time.Millisecond, "failures add up")
	bad, good := b.recorded(t, "bad"), b.recorded(t, "good")
	assert.Equal(t, "it panicked: so bad", bad.Error)
	assert.Equal(t, "a", bad.Node)
	assert.Zero(t, bad.Succeeded)
	assert.Empty(t, good.Error)
	assert.Zero(t, good.Failures)
	assert.Equal(t, good.Started, good.Succeeded)
	assert.WithinDuration(t, b.Clock.Now(), good.Started, patience)
}

// A node doesn't begin a job that it is still running: a run goes on while another job, which is
// due as often, runs several times.
func TestNoOverlap(t *testing.T) {
	t.Parallel()
	b := setup(t, pgtest.Database(t, prepare), "a", governance.Config{})
	quick := make(chan struct{}) // a run of the job quick, for each value that is taken
	overlapped := make(chan bool, 1)
	var running, overlaps atomic.Int32
	b.start(t,
		governance.Job{Name: "slow", Spec: "@every 1s", DryRun: noDryRun,
			Run: func(ctx context.Context) (int, error) {
				defer running.Add(-1)
				if running.Add(1) > 1 {
					overlaps.Add(1)
				}
				for range 4 {
					select {
					case <-ctx.Done():
						return 0, nil
					case <-quick:
					}
				}
				select {
				case overlapped <- overlaps.Load() > 0:
				default:
				}
				return 0, nil
			}},
		governance.Job{Name: "quick", Spec: "@every 1s", DryRun: noDryRun,
			Run: func(ctx context.Context) (int, error) {
				select {
				case <-ctx.Done():
				case quick <- struct{}{}:
				}
				return 0, nil
			}})
	select {
	case is := <-overlapped:
		assert.False(t, is)
	case <-time.After(patience):
		t.Fatal("the jobs don't run")
	}
}

// Of several nodes, the newest run that did something is recorded; an idle run only once that one
// is old or failed.
func TestRecordJob(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a, b := setup(t, url, "a", governance.Config{}), setup(t, url, "b", governance.Config{})
	start := a.Clock.Now()
	at := func(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }
	for _, step := range []struct {
		name     string
		node     *bundle
		run      store.JobRun
		failures int
		want     store.JobRun
	}{
		{"the first", a, store.JobRun{Started: at(0), Duration: time.Second}, 0,
			store.JobRun{Node: "a", Started: at(0), Duration: time.Second, Succeeded: at(0)}},
		{"idle, too soon", b, store.JobRun{Started: at(59)}, 0,
			store.JobRun{Node: "a", Started: at(0), Duration: time.Second, Succeeded: at(0)}},
		{"idle, after a minute", b, store.JobRun{Started: at(60)}, 0,
			store.JobRun{Node: "b", Started: at(60), Succeeded: at(60)}},
		{"rows", a, store.JobRun{Started: at(61), Rows: 5}, 0,
			store.JobRun{Node: "a", Started: at(61), Rows: 5, Succeeded: at(61)}},
		{"one that began before", b, store.JobRun{Started: at(50), Rows: 7}, 0,
			store.JobRun{Node: "a", Started: at(61), Rows: 5, Succeeded: at(61)}},
		{"failed", b, store.JobRun{Started: at(62), Error: "no"}, 2,
			store.JobRun{Node: "b", Started: at(62), Error: "no", Failures: 2, Succeeded: at(61)}},
		{"failed again, elsewhere", a, store.JobRun{Started: at(63), Error: "not now"}, 1,
			store.JobRun{Node: "a", Started: at(63), Error: "not now", Failures: 3,
				Succeeded: at(61)}},
		{"idle after that", b, store.JobRun{Started: at(64)}, 0,
			store.JobRun{Node: "b", Started: at(64), Succeeded: at(64)}},
		{"failed very often", b, store.JobRun{Started: at(65), Error: "no"}, math.MaxInt32,
			store.JobRun{Node: "b", Started: at(65), Error: "no", Failures: math.MaxInt32,
				Succeeded: at(64)}},
		{"failed once more", a, store.JobRun{Started: at(66), Error: "no"}, 1,
			store.JobRun{Node: "a", Started: at(66), Error: "no", Failures: 1_000_000_001,
				Succeeded: at(64)}},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.run.Name, step.run.Spec = "job", "@every 1s"
			step.want.Name, step.want.Spec = "job", "@every 1s"
			require.NoError(t, step.node.RecordJob(t.Context(), step.run, step.failures))
			assert.Equal(t, step.want, a.recorded(t, "job"))
		})
	}
}

// A node with nothing to do writes about once a minute for each job.
func TestIdleJobsWriteLittle(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	var runs atomic.Int32
	b.start(t,
		governance.Job{Name: "idle", Spec: "@every 1s", DryRun: noDryRun,
			Run: func(context.Context) (int, error) { runs.Add(1); return 0, nil }})
	require.Eventually(t, func() bool { return !b.recorded(t, "idle").Started.IsZero() }, patience,
		10*time.Millisecond)
	first := b.recorded(t, "idle").Started
	n := runs.Load()
	require.Eventually(t, func() bool { return runs.Load() > n+7 }, 45*time.Second,
		10*time.Millisecond)
	assert.Equal(t, first, b.recorded(t, "idle").Started)
}

func TestRunByHand(t *testing.T) {
	t.Parallel()
	b := setup(t, pgtest.Database(t, prepare), "by-hand", governance.Config{})
	run, err := b.gov.RunByHand(t.Context(),
		governance.Job{Name: "fold", Spec: "@every 1m",
			Run: func(context.Context) (int, error) { return 2, errors.New("half way") }})
	require.ErrorContains(t, err, "half way")
	assert.Equal(t, 2, run.Rows)
	got := b.recorded(t, "fold")
	assert.Equal(t, []any{"by-hand", "half way", 1}, []any{got.Node, got.Error, got.Failures})
	_, err = b.gov.Job("nope")
	require.ErrorContains(t, err, "the jobs are rescue, promote")
}
