package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// base is a type with one stage; others depend on its tasks.
func base() asyncflow.TaskType {
	return asyncflow.TaskType{Name: "base", Stages: []asyncflow.Stage{{Name: "only",
		Timeout: asyncflow.NewDuration(time.Minute)}}}.WithDefaults()
}

// setupEdges returns a bundle with the types base and pipe.
func setupEdges(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.put(base())
	b.put(twoStages())
	return b
}

func newBase(key string) asyncflow.NewTask {
	return asyncflow.NewTask{Type: "base", Context: json.RawMessage(`{"of": "base"}`),
		Options: asyncflow.Options{Key: key}}
}

func byKey(key string) asyncflow.Dependency { return asyncflow.Dependency{Type: "base", Key: key} }

func byID(id asyncflow.TaskID) asyncflow.Dependency { return asyncflow.Dependency{Task: id} }

// dependent is a task of the type pipe that depends on others.
func dependent(on ...asyncflow.Dependency) asyncflow.NewTask {
	task := newTask(`{"a": 1.0}`)
	task.DependsOn = on
	return task
}

// endBase ends the next task of the type base.
func (b *bundle) endBase(o asyncflow.Outcome) {
	b.t.Helper()
	kind, err := b.Catalog.Type(tenant, "base")
	require.NoError(b.t, err)
	leases := b.lease(kind, 1)
	require.Len(b.t, leases, 1)
	b.settle(kind, leases[0], o)
}

// followUp does all that is left to do.
func (b *bundle) followUp() {
	b.t.Helper()
	for more := true; more; {
		var err error
		more, err = b.FollowUp(b.t.Context(), tenant)
		require.NoError(b.t, err)
	}
}

// comesTo waits until a task is in a status, and returns it. If that takes long, FollowUp met a
// lock on a busy machine: then it is called again, as the background job does.
func (b *bundle) comesTo(id asyncflow.TaskID, status asyncflow.Status) (task store.Task) {
	b.t.Helper()
	began := time.Now()
	eventually(b.t, id.String()+" is "+string(status), func() bool {
		if time.Since(began) > 5*time.Second {
			_, _, err := b.SweepFollowUps(b.t.Context(), tenant)
			require.NoError(b.t, err)
		}
		var err error
		task, err = b.Task(b.t.Context(), tenant, id)
		require.NoError(b.t, err)
		return task.Status == status
	})
	return task
}

func TestADependentWaitsForATask(t *testing.T) {
	b := setupEdges(t)
	other := b.submit(newBase(""))[0]
	got := b.submit(dependent(byID(other.ID)))[0]
	assert.Equal(t, asyncflow.StatusWaiting, got.Status)
	b.followUp()
	task := b.comesTo(got.ID, asyncflow.StatusWaiting)
	assert.Equal(t, asyncflow.WaitDependencies, task.WaitsFor)
	require.Len(t, task.Dependencies, 1)
	assert.Equal(t, other.ID, task.Dependencies[0].Task)
	assert.Equal(t, asyncflow.DependencyRunning, task.Dependencies[0].Status)
	assert.Empty(t, b.lease(b.known(), 1))

	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	task = b.comesTo(got.ID, asyncflow.StatusPending)
	assert.EqualValues(t, asyncflow.StatusSucceeded, task.Dependencies[0].Status)
	leases := b.leaseAll(b.known(), 1)
	assert.Equal(t, 1, leases[0].Seq, "without a journal row")
	assert.JSONEq(t, `{"a":1.0}`, string(leases[0].Context))
	b.checkTokens("pipe")
}

func TestADependentMayComeBeforeOrAfter(t *testing.T) {
	b := setupEdges(t)
	first := b.submit(dependent(byKey("k")))[0]
	b.followUp()
	b.comesTo(first.ID, asyncflow.StatusWaiting)
	b.submit(newBase("k"))
	second := b.submit(dependent(byKey("k")))[0]
	b.followUp()
	b.comesTo(second.ID, asyncflow.StatusWaiting)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	for _, got := range []store.Submitted{first, second} {
		task := b.comesTo(got.ID, asyncflow.StatusPending)
		assert.Equal(t, "k", task.Dependencies[0].Key)
		assert.Equal(t, "base", task.Dependencies[0].Task.Type)
	}
	third := b.submit(dependent(byKey("k")))[0]
	b.comesTo(third.ID, asyncflow.StatusPending)
	b.checkTokens("pipe")
}

func TestWhatFollowsFromAFailedDependency(t *testing.T) {
	b := setupEdges(t)
	for policy, want := range map[asyncflow.OnFailure]asyncflow.Status{
		"": asyncflow.StatusFailed, asyncflow.DependentFails: asyncflow.StatusFailed,
		asyncflow.DependentCancelled: asyncflow.StatusCancelled,
		asyncflow.DependentRuns:      asyncflow.StatusPending} {
		bad, good := b.submit(newBase(""))[0], b.submit(newBase(""))[0]
		on := byID(bad.ID)
		on.OnFailure = policy
		got := b.submit(dependent(byID(good.ID), on))[0]
		b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
		if policy == asyncflow.DependentRuns {
			b.followUp()
			b.comesTo(got.ID, asyncflow.StatusWaiting)
			b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
			b.comesTo(got.ID, want)
			continue
		}
		task := b.comesTo(got.ID, want)
		assert.Equal(t, "depends_on[1]: task "+bad.ID.String()+" has failed", task.Error)
		b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	}
	b.checkTokens("pipe")
}

func TestADependencyIsNotWaitedForLongerThanItsTime(t *testing.T) {
	b := setupEdges(t)
	on := byKey("never")
	on.WaitFor = asyncflow.NewDuration(time.Millisecond)
	got := b.submit(dependent(on))[0]
	eventually(t, "the edge is late", func() bool {
		_, err := b.SweepEdges(t.Context(), tenant)
		require.NoError(t, err)
		task, err := b.Task(t.Context(), tenant, got.ID)
		require.NoError(t, err)
		return task.Status == asyncflow.StatusFailed
	})
	task := b.comesTo(got.ID, asyncflow.StatusFailed)
	assert.Contains(t, task.Error,
		`depends_on[0]: task of the type base with the key "never" had not ended by`)
	assert.Equal(t, asyncflow.DependencyLate, task.Dependencies[0].Status)
}

func TestBadDependencies(t *testing.T) {
	b := setupEdges(t)
	known := b.submit(newBase(""))[0]
	ownKey := dependent(byKey("x"), asyncflow.Dependency{Type: "pipe", Key: "own"})
	ownKey.Options.Key = "own"
	unknown := known.ID
	unknown.Number += 1 << 20
	gone := known.ID
	gone.Number = 1 << 60
	for message, task := range map[string]asyncflow.NewTask{
		"depends_on[1]: is the task itself":                 ownKey,
		"depends_on[0]: names the task " + unknown.String(): dependent(byID(unknown)),
		"depends_on[1]: names the task " + gone.String():    dependent(byKey("k"), byID(gone)),
		"depends_on[0]: names the task type nothing, which d": dependent(
			asyncflow.Dependency{Type: "nothing", Key: "k"}),
	} {
		fine := dependent(byID(known.ID))
		got := b.Submit(t.Context(), tenant, []asyncflow.NewTask{task, fine})
		assert.Equal(t, asyncflow.CodeDependency, asyncflow.CodeOf(got[0].Err))
		field, text, _ := strings.Cut(message, ": ")
		bad := fieldsOf(got[0].Err)
		require.Len(t, bad, 1)
		assert.Equal(t, field, bad[0].Field)
		assert.Contains(t, bad[0].Message, text)
		assert.NoError(t, got[1].Err, "a refused task doesn't affect the others")
	}
	double := b.Submit(t.Context(), tenant, []asyncflow.NewTask{ownKey, ownKey})
	for _, got := range double {
		assert.Equal(t, asyncflow.CodeDependency, asyncflow.CodeOf(got.Err), "%v", got.Err)
	}
	b.checkTokens("pipe")
	var keys int
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT count(*) FROM tenant_acme.idempotency_keys`).Scan(&keys))
	assert.Zero(t, keys, "a refused task has no key")
}

func fieldsOf(err error) []asyncflow.FieldError {
	var known *asyncflow.Error
	if errors.As(err, &known) {
		return known.Fields
	}
	return nil
}

func TestACycleIsRefused(t *testing.T) {
	b := setupEdges(t)
	keyed := func(key string, on ...string) asyncflow.NewTask {
		task := dependent()
		task.Options.Key = key
		for _, key := range on {
			task.DependsOn = append(task.DependsOn, asyncflow.Dependency{Type: "pipe", Key: key})
		}
		return task
	}
	b.submit(keyed("a", "b"), keyed("b", "x", "c"))
	got := b.Submit(t.Context(), tenant, []asyncflow.NewTask{keyed("c", "y", "z", "a"),
		keyed("d", "a"), keyed("e", "c")})
	require.Equal(t, asyncflow.CodeDependency, asyncflow.CodeOf(got[0].Err))
	assert.Equal(t, "depends_on[2]", fieldsOf(got[0].Err)[0].Field)
	require.NoError(t, got[1].Err)
	require.NoError(t, got[2].Err, "it isn't in the cycle")
	task, err := b.Task(t.Context(), tenant, got[2].ID)
	require.NoError(t, err)
	assert.Zero(t, task.Dependencies[0].Task, "that was refused")
	b.submit(keyed("c", "y"))
	b.checkTokens("pipe")
}

func TestAChainHasALimit(t *testing.T) {
	b := setupEdges(t)
	last := b.submit(newBase(""))[0].ID
	for range asyncflow.MaxDependencyDepth {
		last = b.submit(dependent(byID(last)))[0].ID
	}
	got := b.Submit(t.Context(), tenant, []asyncflow.NewTask{dependent(byKey("k"), byID(last))})[0]
	require.Equal(t, asyncflow.CodeDependency, asyncflow.CodeOf(got.Err))
	assert.Equal(t, "depends_on[1]", fieldsOf(got.Err)[0].Field)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	b.comesTo(last, asyncflow.StatusFailed)
}

func TestManyDependentsOfOneTask(t *testing.T) {
	b := setupEdges(t)
	other := b.submit(newBase(""))[0]
	n := longform.Size(1, 3) * asyncflow.MaxBatch
	for range n / asyncflow.MaxBatch {
		tasks := make([]asyncflow.NewTask, asyncflow.MaxBatch)
		for i := range tasks {
			tasks[i] = dependent(byID(other.ID))
		}
		b.submit(tasks...)
	}
	b.followUp()
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	begin := time.Now()
	eventually(t, "all are released", func() bool {
		var left int
		require.NoError(t, b.db.QueryRow(t.Context(), `SELECT count(*) FROM tenant_acme.wait`).
			Scan(&left))
		return left == 0
	})
	t.Logf("%d dependents released in %s", n, time.Since(begin))
	b.checkTokens("pipe")
}

func TestATaskDependsOnManyOthers(t *testing.T) {
	b := setupEdges(t)
	var on []asyncflow.Dependency
	for i := range asyncflow.MaxDependencies {
		on = append(on, byKey(fmt.Sprint(i)))
	}
	got := b.submit(dependent(on...))[0]
	var begin time.Time
	for i := range on {
		b.submit(newBase(fmt.Sprint(i)))
		begin = time.Now()
		b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	}
	task := b.comesTo(got.ID, asyncflow.StatusPending)
	t.Logf("released %s after the last end", time.Since(begin))
	assert.Len(t, task.Dependencies, asyncflow.MaxDependencies)
	b.checkTokens("pipe")
}

func TestContextFromDependencies(t *testing.T) {
	b := setupEdges(t)
	b.submit(newBase("a"), newBase("b"), newBase("c"))
	task := dependent(byKey("a"), byKey("b"), byKey("c"))
	task.Options.ContextFrom = asyncflow.ContextFromDependencies
	task.DependsOn[2].OnFailure = asyncflow.DependentRuns
	got := b.submit(task)[0]
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`{"n": 1.0}`)})
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "no"})
	on := b.comesTo(got.ID, asyncflow.StatusPending).Dependencies
	leases := b.leaseAll(b.known(), 1)
	assert.Equal(t, fmt.Sprintf(`{"context":{"a": 1.0},"dependencies":[`+
		`{"status":"succeeded","id":"%s","key":"a","output":{"n": 1.0}},`+
		`{"status":"succeeded","id":"%s","key":"b","output":{"of": "base"}},`+
		`{"status":"failed","id":"%s","key":"c"}]}`, on[0].Task, on[1].Task, on[2].Task),
		string(leases[0].Context))
	b.checkTokens("pipe")
}

func TestLongResultsOfDependenciesAreLeftOut(t *testing.T) {
	b := setupEdges(t)
	b.submit(newBase("a"), newBase("b"))
	task := dependent(byKey("a"), byKey("b"))
	task.Options.ContextFrom = asyncflow.ContextFromDependencies
	b.submit(task)
	long := json.RawMessage(`"` + strings.Repeat("x", asyncflow.MaxInlineResults/2) + `"`)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: long})
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: long})
	var leases []asyncflow.Lease
	eventually(t, "it is released", func() bool {
		leases = b.lease(b.known(), 1)
		return len(leases) == 1
	})
	assert.Less(t, len(leases[0].Context), 1000)
	assert.Contains(t, string(leases[0].Context), `"output_omitted":true`)
}

func TestAWaitingDependentIsCancelledAndChanged(t *testing.T) {
	b := setupEdges(t)
	other := b.submit(newBase(""))[0]
	got := b.submit(dependent(byID(other.ID)))[0]
	later := b.Clock.Now().Add(-time.Hour)
	task, err := b.Change(t.Context(), tenant, got.ID, asyncflow.Patch{RunAt: later})
	require.NoError(t, err)
	assert.Equal(t, asyncflow.WaitDependencies, task.WaitsFor)
	b.followUp()
	assert.Empty(t, b.lease(b.known(), 1))
	b.checkTokens("pipe")
	task, err = b.Cancel(t.Context(), tenant, got.ID, "")
	require.NoError(t, err)
	assert.Equal(t, asyncflow.StatusCancelled, task.Status)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.followUp()
	b.comesTo(got.ID, asyncflow.StatusCancelled)
	b.checkTokens("pipe")
}

func TestTheCancelOfATaskClosesEdges(t *testing.T) {
	b := setupEdges(t)
	other := b.submit(newBase(""))[0]
	got := b.submit(dependent(byID(other.ID)))[0]
	_, err := b.Cancel(t.Context(), tenant, other.ID, "")
	require.NoError(t, err)
	task := b.comesTo(got.ID, asyncflow.StatusFailed)
	assert.Equal(t, "depends_on[0]: task "+other.ID.String()+" was cancelled", task.Error)
}

// An output counts as often as a task depends on it.
func TestOneOutputManyTimes(t *testing.T) {
	b := setupEdges(t)
	on := b.submit(newBase(""))[0].ID
	task := dependent(byID(on), byID(on), byID(on))
	task.Options.ContextFrom = asyncflow.ContextFromDependencies
	got := b.submit(task)[0].ID
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(
		`"` + strings.Repeat("x", asyncflow.MaxInlineResults/2) + `"`)})
	b.comesTo(got, asyncflow.StatusPending)
	leases := b.leaseAll(b.known(), 1)
	assert.Less(t, len(leases[0].Context), 1000)
}

// A task that lost its key to a later one doesn't end the wait for that key.
func TestAKeyThatBelongsToALaterTask(t *testing.T) {
	b := setupEdges(t)
	b.submit(newBase("k"))
	b.exec(`UPDATE tenant_acme.idempotency_keys SET expires_at = $1`,
		b.Clock.Now().Add(-time.Minute))
	got := b.submit(dependent(byKey("k")))[0].ID
	later := b.submit(newBase("k"))[0]
	require.False(t, later.Existing)
	b.followUp()
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "too old"})
	b.followUp()
	b.comesTo(got, asyncflow.StatusWaiting)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	task := b.comesTo(got, asyncflow.StatusPending)
	assert.Equal(t, later.ID, task.Dependencies[0].Task)
}

// One transaction gives at most 16 tasks the results of their dependencies. Later ones give them to
// the others.
func TestOneTransactionWritesNoMoreContextsThanItsBound(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	b.put(twoStages())
	b.submit(newBase("k"))
	const dependents = 40
	task := dependent(byKey("k"))
	plain := task
	task.Options.ContextFrom = asyncflow.ContextFromDependencies
	for range dependents {
		b.submit(task)
	}
	b.submit(plain) // it keeps its context, so it doesn't count
	b.followUp()
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(`7`)})
	var released []int
	before := b.count(`SELECT count(*) FROM tenant_acme.wait`)
	require.Equal(t, dependents+1, before)
	for more := true; more; {
		var err error
		more, err = b.FollowUp(t.Context(), tenant)
		require.NoError(t, err)
		left := b.count(`SELECT count(*) FROM tenant_acme.wait`)
		released, before = append(released, before-left), left
	}
	assert.Equal(t, []int{0, 17, 16, 8}, released, "first the edges are closed")
	with := 0
	for _, l := range b.leaseAll(b.known(), dependents+1) {
		if strings.Contains(string(l.Context), `"output":7`) {
			with++
		}
	}
	assert.Equal(t, dependents, with)
	b.checkTokens("pipe")
}

// By a key, which may never come, a task doesn't wait for ever. By an id it does: that task is
// there.
func TestAKeyIsWaitedForAWeek(t *testing.T) {
	b := setupEdges(t)
	other := b.submit(newBase(""))[0].ID
	byTheAPI := b.submit(dependent(byKey("k"), byID(other)))[0]
	on := fmt.Sprintf(`[{"type": "base", "key": "k"}, {"task": %q}]`, other)
	bySQL, err := b.bySQL(b.app(), `'pipe', '1', depends_on => '`+on+`'`)
	require.NoError(t, err)
	for _, id := range []asyncflow.TaskID{byTheAPI.ID, bySQL} {
		task := b.task(id)
		assert.Equal(t, 7*24*time.Hour, task.Dependencies[0].Until.Sub(task.CreatedAt))
		assert.Equal(t, asyncflow.DependencyMissing, task.Dependencies[0].Status)
		assert.Zero(t, task.Dependencies[1].Until)
		assert.Equal(t, asyncflow.DependencyRunning, task.Dependencies[1].Status)
	}
	b.exec(`UPDATE tenant_acme.edges SET until = $1 WHERE on_key IS NOT NULL`, b.Clock.Now())
	n, err := b.SweepEdges(t.Context(), tenant)
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	b.followUp()
	b.comesTo(byTheAPI.ID, asyncflow.StatusFailed)
	b.comesTo(bySQL, asyncflow.StatusFailed)
}

// A search for past keys that takes too long keeps nobody from depending on the type.
func TestASlowSearchForPastKeysRefusesNoDependency(t *testing.T) {
	b := setupEdges(t)
	base := b.submit(newBase("k"))[0].ID
	b.exec(`CREATE FUNCTION tenant_acme.slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN RAISE 'slow' USING ERRCODE = 'query_canceled'; END $$`)
	b.exec(`CREATE TRIGGER slow BEFORE INSERT ON tenant_acme.past_keys
		EXECUTE FUNCTION tenant_acme.slow()`)
	first := b.submit(dependent(byKey("k")))[0].ID
	assert.Equal(t, base, b.task(first).Dependencies[0].Task)
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.comesTo(first, asyncflow.StatusPending)
}

// An ended task is found by its key as long as it is kept, and not only in the key's window.
func TestAnEndedTaskIsFoundByAPastKey(t *testing.T) {
	b := setupEdges(t)
	early := b.submit(newBase("early"))[0].ID
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.exec(`DELETE FROM tenant_acme.idempotency_keys`) // before anybody depends on the type
	first := b.submit(dependent(byKey("early")))[0].ID
	assert.Equal(t, early, b.comesTo(first, asyncflow.StatusPending).Dependencies[0].Task)

	ended := b.submit(newBase("k"))[0].ID
	b.endBase(asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
	b.exec(`UPDATE tenant_acme.idempotency_keys SET expires_at = $1`,
		b.Clock.Now().Add(-time.Minute))
	before := b.submit(dependent(byKey("k")))[0].ID
	b.comesTo(before, asyncflow.StatusPending)
	n, err := b.ExpireKeys(t.Context(), tenant)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.idempotency_keys`))
	after := b.submit(dependent(byKey("k")))[0].ID
	task := b.comesTo(after, asyncflow.StatusPending)
	assert.Equal(t, ended, task.Dependencies[0].Task)

	again := b.submit(newBase("k"))[0] // the key is free all the same
	assert.False(t, again.Existing)
	last := b.submit(dependent(byKey("k")))[0].ID
	assert.Equal(t, again.ID, b.task(last).Dependencies[0].Task)
}
