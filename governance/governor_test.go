package governance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// patience bounds the wait for what comes by itself. It is long, since a slow machine is
// no fault, and costs nothing where the wait ends with what it is for.
const patience = 2 * time.Minute

const tenant = "acme"

func prepare(ctx context.Context, url string) error {
	if _, err := store.Migrate(ctx, url); err != nil {
		return err
	}
	_, err := store.CreateTenant(ctx, url, tenant)
	return err
}

// bundle is a node's store and governor.
type bundle struct {
	*store.Store
	*dispatcher.Committer
	jobs map[string]governance.Job
	gov  *governance.Governor
}

func setup(t *testing.T, url, node string, cfg governance.Config) *bundle {
	t.Helper()
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: node})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(c.Close)
	gov, err := governance.New(s, c, cfg)
	require.NoError(t, err)
	b := &bundle{Store: s, Committer: c, gov: gov, jobs: map[string]governance.Job{}}
	for _, j := range b.gov.Jobs() {
		b.jobs[j.Name] = j
	}
	return b
}

// pipe makes a task type whose leases can be made to run out.
func (b *bundle) pipe(t *testing.T, name string) *store.Type {
	t.Helper()
	spec := asyncflow.TaskType{Name: name, Stages: []asyncflow.Stage{{Name: "only", Retry: asyncflow.RetryPolicy{MaxAttempts: 2, Interval: asyncflow.Seconds(-1)}}}}
	_, _, err := b.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
	known, err := b.Catalog.Type(tenant, name)
	require.NoError(t, err)
	return known
}

func (b *bundle) submitAndLease(t *testing.T, pipe *store.Type, n int) []asyncflow.Lease {
	t.Helper()
	tasks := make([]asyncflow.NewTask, n)
	for i := range tasks {
		tasks[i] = asyncflow.NewTask{Type: pipe.Name, Context: json.RawMessage(fmt.Sprint(i))}
	}
	for _, r := range b.Submit(t.Context(), tenant, tasks) {
		require.NoError(t, r.Err)
	}
	leases, _, err := b.Lease(t.Context(), pipe, n)
	require.NoError(t, err)
	require.Len(t, leases, n)
	return leases
}

func exec(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// Expired leases of all types are rescued once, however many nodes try at once;
// those that stand are left alone.
func TestRescue(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	one, two := a.pipe(t, "one"), a.pipe(t, "two")
	b := setup(t, url, "b", governance.Config{})
	a.submitAndLease(t, one, 1500) // more than one transaction takes
	a.submitAndLease(t, two, 10)
	n, err := a.jobs["rescue"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "they stand")
	exec(t, url, `UPDATE tenant_acme.lease_one SET until = now() - interval '1 s'`)
	exec(t, url, `UPDATE tenant_acme.lease_two SET until = now() - interval '1 s' WHERE id % 2 = 0`)
	var mu sync.Mutex
	sum := 0
	require.Eventually(t, func() bool { // a node that doesn't get the lock leaves it to the other
		var wg sync.WaitGroup
		for _, node := range []*bundle{a, b} {
			wg.Go(func() {
				n, err := node.jobs["rescue"].Run(t.Context())
				assert.NoError(t, err)
				mu.Lock()
				sum += n
				mu.Unlock()
			})
		}
		wg.Wait()
		return sum >= 1505
	}, patience, 10*time.Millisecond)
	assert.Equal(t, 1505, sum)
	list, err := a.Tasks(t.Context(), tenant, store.Filter{Type: "two", Status: asyncflow.StatusRunning, Limit: 100})
	require.NoError(t, err)
	assert.Len(t, list, 5)
}

// The second loss is the last: a task of two attempts has failed then.
func TestRescueCountsAttempts(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	id := b.submitAndLease(t, pipe, 1)[0].ID
	for range 2 {
		exec(t, url, `UPDATE tenant_acme.lease_pipe SET until = now() - interval '1 s'`)
		n, err := b.jobs["rescue"].Run(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		require.Eventually(t, func() bool {
			_, _, err = b.Lease(t.Context(), pipe, 1)
			require.NoError(t, err)
			task, err := b.Task(t.Context(), tenant, id)
			require.NoError(t, err)
			return task.Status != asyncflow.StatusPending
		}, patience, 10*time.Millisecond)
	}
	task, err := b.Task(t.Context(), tenant, id)
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusFailed, task.Status)
	assert.Contains(t, task.Error, "the lease ran out")
}

// Another node's lock keeps a job from running; it is gone with its transaction.
func TestOneNodeAtATime(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	b.submitAndLease(t, pipe, 1)
	exec(t, url, `UPDATE tenant_acme.lease_pipe SET until = now() - interval '1 s'`)
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock($1)`, store.JobLock("rescue"))
	require.NoError(t, err)
	n, err := b.jobs["rescue"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n, "another node does it")
	require.NoError(t, tx.Rollback(t.Context()))
	n, err = b.jobs["rescue"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n)
}

// Cron runs the jobs.
func TestCron(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{Schedules: map[string]string{"rescue": "@every 1s", "promote": "@every 1s"}})
	pipe := b.pipe(t, "pipe")
	id := b.submitAndLease(t, pipe, 1)[0].ID
	exec(t, url, `UPDATE tenant_acme.lease_pipe SET until = now() - interval '1 s'`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.gov.Run(ctx) }()
	require.Eventually(t, func() bool {
		task, err := b.Task(t.Context(), tenant, id)
		return err == nil && task.Status == asyncflow.StatusPending
	}, patience, 10*time.Millisecond)
	cancel()
	require.NoError(t, <-done)
	_, err := governance.New(b.Store, b, governance.Config{Schedules: map[string]string{"rescue": "now and then"}})
	require.ErrorContains(t, err, "now and then")
}

// A wake-up that was lost is made good: what has been due is announced again.
func TestPromoteAnnouncesWhatIsDue(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	for _, r := range b.Submit(t.Context(), tenant, []asyncflow.NewTask{{Type: "pipe", Context: json.RawMessage(`1`)}}) {
		require.NoError(t, r.Err)
	}
	woken := make(chan store.TypeKey, 10)
	b.Wakeups.Subscribe(func(k store.TypeKey, _ time.Time) { woken <- k }, func() {})
	_, err := b.jobs["promote"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, pipe.Key(), <-woken)
}

// Operations of all tenants are carried on, by every node that has the job, at their
// pace and until they are done or stopped; long after, they are forgotten.
func TestOperations(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	a := setup(t, url, "a", governance.Config{})
	pipe := a.pipe(t, "pipe")
	b := setup(t, url, "b", governance.Config{})
	a.submitAndLease(t, pipe, 450)
	begin := func(filter store.Filter, pace float64) store.Operation {
		filter.Type = "pipe"
		o, err := a.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.CancelTasks, Filter: filter, Pace: pace})
		require.NoError(t, err)
		return o
	}
	slow := begin(store.Filter{Status: asyncflow.StatusRunning}, 0.01)
	n, err := a.jobs["operations"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, n, "one, and the next one is due much later")
	n, err = b.jobs["operations"].Run(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	begin(store.Filter{}, 0)
	begin(store.Filter{Stage: "only"}, 500)
	var mu sync.Mutex
	var wg sync.WaitGroup
	sum := 1
	for _, node := range []*bundle{a, b} {
		wg.Go(func() {
			n, err := node.jobs["operations"].Run(t.Context())
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			sum += n
		})
	}
	wg.Wait()
	assert.Equal(t, 450, sum)
	all, _, err := a.OperationPage(t.Context(), tenant, store.Place{}, 500)
	require.NoError(t, err)
	for _, o := range all {
		if o.ID == slow.ID {
			assert.Equal(t, store.OperationRunning, o.State)
			continue
		}
		assert.Equal(t, store.OperationDone, o.State)
	}
	exec(t, url, `UPDATE tenant_acme.operations SET finished_at = finished_at - interval '31 d'`)
	n, err = a.jobs["forget"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, n)
}

// A paced operation goes on within its turn as its steps become due.
func TestPacedOperation(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	b.submitAndLease(t, b.pipe(t, "pipe"), 30)
	o, err := b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.CancelTasks, Filter: store.Filter{Type: "pipe"}, Pace: 20})
	require.NoError(t, err)
	start := b.Clock.Now()
	n, err := b.jobs["operations"].Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 30, n)
	o, err = b.Operation(t.Context(), tenant, o.ID)
	require.NoError(t, err)
	assert.Equal(t, store.OperationDone, o.State)
	assert.GreaterOrEqual(t, o.FinishedAt.Sub(start), time.Second, "the pace of the first 20")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.StartOperation(t.Context(), tenant, store.NewOperation{Kind: store.RedriveTasks, Filter: store.Filter{Type: "pipe", Status: asyncflow.StatusCancelled}})
	require.NoError(t, err)
	n, err = b.jobs["operations"].Run(ctx)
	require.Error(t, err)
	assert.Zero(t, n, "a node that stops takes no step")
}

// A node that hears of another one's tasks looks after them, however idle their type was.
func TestRescueOfANodeThatIsGone(t *testing.T) {
	t.Run("leased", func(t *testing.T) { rescueOfANodeThatIsGone(t, false) })
	t.Run("leased with its insert", func(t *testing.T) { rescueOfANodeThatIsGone(t, true) })
}

func rescueOfANodeThatIsGone(t *testing.T, atOnce bool) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	node := func(name string) (*bundle, func()) {
		s, err := store.Open(t.Context(), store.Config{URL: url, Node: name, Notify: true})
		require.NoError(t, err)
		c := dispatcher.NewCommitter(s, nil)
		gov, err := governance.New(s, c, governance.Config{})
		require.NoError(t, err)
		b := &bundle{Store: s, Committer: c, gov: gov, jobs: map[string]governance.Job{}}
		for _, j := range b.gov.Jobs() {
			b.jobs[j.Name] = j
		}
		listening := make(chan struct{}, 10)
		s.Wakeups.Subscribe(func(store.TypeKey, time.Time) {}, func() { listening <- struct{}{} })
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		<-listening
		stop := sync.OnceFunc(func() {
			c.Close()
			cancel()
			require.NoError(t, <-done)
			s.Close()
		})
		t.Cleanup(stop)
		return b, stop
	}
	a, stop := node("a")
	pipe := a.pipe(t, "pipe")
	b, _ := node("b")
	rescued := func() bool {
		n, err := b.jobs["rescue"].Run(t.Context())
		require.NoError(t, err)
		return n > 0
	}
	quick := pipe.TaskType
	quick.Stages = slices.Clone(quick.Stages)
	quick.Stages[0].Timeout = asyncflow.Duration(time.Second)
	_, _, err := a.PutTaskType(t.Context(), tenant, quick)
	require.NoError(t, err)
	require.False(t, rescued(), "it is idle")
	if pipe, err = a.Catalog.Type(tenant, "pipe"); atOnce {
		a.insertLeased(t, pipe)
	} else {
		a.submitAndLease(t, pipe, 1)
	}
	require.NoError(t, err)
	time.Sleep(100 * time.Millisecond) // the news have gone out
	stop()
	require.Eventually(t, rescued, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		leases, _, err := b.Lease(t.Context(), pipe, 1)
		require.NoError(t, err)
		return len(leases) == 1
	}, patience, 5*time.Millisecond)
}

// insertLeased inserts a task with its first lease, as a dispatcher does that has capacity.
func (b *bundle) insertLeased(t *testing.T, pipe *store.Type) {
	t.Helper()
	pipe, numbers, err := b.TakeNumbers(t.Context(), pipe, 1)
	require.NoError(t, err)
	id, now, stage := asyncflow.NewTaskID(pipe.Name, pipe.End, numbers[0]), b.Clock.Now(), pipe.Stages[0].Name
	lease := &asyncflow.Lease{ID: id, Seq: 1, Stage: stage, Attempt: 1, OrderTime: now}
	require.NoError(t, b.Commit(t.Context(), []*store.Writes{{Type: pipe, New: []*store.Insertion{{ID: id, Created: now,
		Verdict: asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: 1, OrderTime: now},
		Context: []byte(`1`), Lease: lease}}}}))
}
