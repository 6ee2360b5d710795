package governance_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/governance"
	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store"
)

// Expired leases of all types are rescued once, however many nodes try at once; other leases stay.
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
	exec(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE `+ofType("one"))
	exec(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE id % 2 = 0 AND `+
		ofType("two"))
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
	list, err := a.Tasks(t.Context(), tenant,
		store.Filter{Type: "two", Status: asyncflow.StatusRunning, Limit: 100})
	require.NoError(t, err)
	assert.Len(t, list, 5)
}

// A task with two attempts fails with the second lost one.
func TestRescueCountsAttempts(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	b := setup(t, url, "a", governance.Config{})
	pipe := b.pipe(t, "pipe")
	id := b.submitAndLease(t, pipe, 1)[0].ID
	for range 2 {
		exec(t, url, `UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
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

// A node rescues the tasks of another node that it heard of, however idle their type was.
func TestRescueOfANodeThatIsGone(t *testing.T) {
	t.Parallel()
	t.Run("leased", func(t *testing.T) { rescueOfANodeThatIsGone(t, false) })
	t.Run("leased with its insert", func(t *testing.T) { rescueOfANodeThatIsGone(t, true) })
}

func rescueOfANodeThatIsGone(t *testing.T, atOnce bool) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	marked := make(chan struct{}, 100)
	node := func(name string) (*bundle, func()) {
		s, err := store.Open(t.Context(), store.Config{URL: url, Node: name, Notify: true,
			NoRoles: pgtest.NoRoles()})
		require.NoError(t, err)
		c := dispatcher.NewCommitter(s, nil)
		gov, err := governance.New(s, c, governance.Config{})
		require.NoError(t, err)
		b := &bundle{Store: s, Committer: c, gov: gov, jobs: map[string]governance.Job{}}
		for _, j := range b.gov.Jobs() {
			b.jobs[j.Name] = j
		}
		listening := make(chan struct{}, 10)
		listen(t, s, func(key store.TypeKey, _ time.Time) {
			if name == "b" && key.Type == "marker" {
				marked <- struct{}{}
			}
		}, func() { listening <- struct{}{} })
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
	pipe, marker := a.pipe(t, "pipe"), a.pipe(t, "marker")
	b, _ := node("b")
	rescued := func() bool {
		n, err := b.jobs["rescue"].Run(t.Context())
		require.NoError(t, err)
		return n > 0
	}
	quick := pipe.TaskType
	quick.Stages = slices.Clone(quick.Stages)
	quick.Stages[0].Timeout = asyncflow.NewDuration(time.Second)
	_, _, err := a.PutTaskType(t.Context(), tenant, quick)
	require.NoError(t, err)
	require.False(t, rescued(), "it is idle")
	if pipe, err = a.Catalog.Type(tenant, "pipe"); atOnce {
		a.insertLeased(t, pipe)
	} else {
		a.submitAndLease(t, pipe, 1)
	}
	require.NoError(t, err)
	a.Wakeups.Announce(marker.Key(), a.Clock.Now())
	<-marked // so what was announced before is there, too
	stop()
	require.Eventually(t, rescued, patience, 100*time.Millisecond)
	require.Eventually(t, func() bool {
		leases, _, err := b.Lease(t.Context(), pipe, 1)
		require.NoError(t, err)
		return len(leases) == 1
	}, patience, 20*time.Millisecond)
}

// insertLeased inserts a task with its first lease, as a dispatcher with capacity does.
func (b *bundle) insertLeased(t *testing.T, pipe *store.Type) {
	t.Helper()
	pipe, numbers, err := b.AllotNumbers(t.Context(), pipe, 1)
	require.NoError(t, err)
	id, now, stage := asyncflow.NewTaskID(pipe.Name, pipe.End,
		numbers[0]), b.Clock.Now(), pipe.Stages[0].Name
	lease := &asyncflow.Lease{ID: id, Seq: 1, Stage: stage, Attempt: 1, OrderTime: now}
	_, err = b.Commit(t.Context(), []*store.Writes{{Type: pipe, New: []*store.Insertion{{
		ID: id, Created: now,
		Verdict: asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: 1, OrderTime: now},
		Context: []byte(`1`), Lease: lease}}}})
	require.NoError(t, err)
}

// An attempt that was answered with 202 ends when its max_processing_time is over, although its
// lease was known to stand for the stage's longer timeout.
func TestRescueOfAShortStage(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t, prepare)
	s, err := store.Open(t.Context(), store.Config{URL: url, Node: "a", Notify: true,
		NoRoles: pgtest.NoRoles()})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	c := dispatcher.NewCommitter(s, nil)
	t.Cleanup(c.Close)
	gov, err := governance.New(s, c, governance.Config{})
	require.NoError(t, err)
	rescue, err := gov.Job("rescue")
	require.NoError(t, err)
	b := &bundle{Store: s, Committer: c, gov: gov}
	spec := asyncflow.TaskType{Name: "pipe",
		Stages: []asyncflow.Stage{{Name: "only", Timeout: asyncflow.NewDuration(time.Hour),
			MaxProcessingTime: asyncflow.NewDuration(time.Second)}}}
	_, _, err = s.PutTaskType(t.Context(), tenant, spec.WithDefaults())
	require.NoError(t, err)
	pipe, err := s.Catalog.Type(tenant, "pipe")
	require.NoError(t, err)
	l := b.submitAndLease(t, pipe, 1)[0]
	n, err := rescue.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "it stands for an hour")
	c.Accept(tenant, l, s.Clock.Now().Add(time.Second), store.Seen{},
		func(err error) { require.NoError(t, err) })
	require.Eventually(t, func() bool {
		n, err := rescue.Run(t.Context())
		require.NoError(t, err)
		return n == 1
	}, patience, 10*time.Millisecond)
}
