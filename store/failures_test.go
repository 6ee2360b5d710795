package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// lastHour is a filter of all failures of the last hour.
func (b *bundle) lastHour() store.FailureFilter {
	now := b.Clock.Now()
	return store.FailureFilter{Since: now.Add(-time.Hour), Until: now.Add(time.Minute),
		Order: store.FailuresByCount, Limit: store.MaxFailureGroups}
}

// failures reads the failures of a filter, however long it takes.
func (b *bundle) failures(f store.FailureFilter) store.FailureReport {
	b.t.Helper()
	b.SetFailureTime(patience)
	report, err := b.GroupFailures(b.t.Context(), tenant, f)
	require.NoError(b.t, err)
	return report
}

// failWith submits a task of a type and lets it fail for good with an error.
func (b *bundle) failWith(name, text string) asyncflow.TaskID {
	b.t.Helper()
	task := newTask(`1`)
	task.Type = name
	id := b.submit(task)[0].ID
	l := b.leaseAll(b.kind(name), 1)[0]
	require.Equal(b.t, id, l.ID)
	b.settle(b.kind(name), l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: text})
	return id
}

// A report groups the failures of all types of a tenant by their errors.
func TestFailures(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		for _, name := range []string{"pipe", "tube"} {
			spec := twoStages()
			spec.Name = name
			b.put(spec)
		}
		for i := range 3 {
			b.failWith("pipe", fmt.Sprintf("no_user: user %d is gone", i))
		}
		last := b.failWith("tube", `no_user: user 17 is gone`)
		b.failWith("tube", `the disk is full`)
		report := b.failures(b.lastHour())
		assert.Equal(t, []any{5, 2}, []any{report.Failures, report.Count})
		assert.Empty(t, report.Left)
		require.Len(t, report.Groups, 2)
		users := report.Groups[0]
		assert.Equal(t, "no_user", users.Code)
		assert.Equal(t, "no_user: user # is gone", users.Pattern)
		assert.Equal(t, 4, users.Count)
		assert.Equal(t, []store.StageFailures{{Type: "pipe", Stage: "first", Count: 3},
			{Type: "tube", Stage: "first", Count: 1}}, users.Stages)
		assert.Equal(t, last, users.Example.ID)
		assert.Equal(t, "no_user: user 17 is gone", users.Example.Error)
		assert.False(t, users.First.After(users.Last))
		sum := 0
		for _, n := range users.Steps {
			sum += n
		}
		assert.Equal(t, 4, sum)

		f := b.lastHour()
		f.Order = store.FailuresNewest
		f.Limit = 1
		newest := b.failures(f)
		assert.Equal(t, 2, newest.Count)
		require.Len(t, newest.Groups, 1)
		assert.Equal(t, "the disk is full", newest.Groups[0].Pattern)
		f.Type = "pipe"
		assert.Equal(t, 3, b.failures(f).Failures)
		f.Until = f.Since.Add(time.Minute)
		assert.Zero(t, b.failures(f).Failures)
	})
}

// A group's fingerprint finds its tasks in lists, counts and operations, and no others; a task that
// was started again is in no group.
func TestFingerprintFilter(t *testing.T) {
	eachSet(t, func(t *testing.T, b *bundle) {
		b.put(twoStages())
		var ids []asyncflow.TaskID
		for i := range 3 {
			ids = append(ids, b.failWith("pipe", fmt.Sprintf("user %d is gone", i)))
		}
		other := b.failWith("pipe", "the disk is full")
		f := store.Filter{Fingerprint: b.failures(b.lastHour()).Groups[0].Fingerprint, Limit: 10}
		for _, name := range []string{"", "pipe"} {
			f.Type = name
			list, err := b.Tasks(t.Context(), tenant, f)
			require.NoError(t, err)
			var found []asyncflow.TaskID
			for _, task := range list {
				found = append(found, task.ID)
			}
			assert.ElementsMatch(t, ids, found)
			b.SetCountTime(patience)
			n, err := b.TaskCount(t.Context(), tenant, f)
			require.NoError(t, err)
			assert.Equal(t, store.TaskCount{Tasks: 3, Exact: true}, n)
		}
		f.Limit = 0
		some := f
		some.IDs = []asyncflow.TaskID{ids[1], other}
		count, err := b.CountTasks(t.Context(), tenant,
			store.NewOperation{Kind: store.RedriveTasks, Filter: some})
		require.NoError(t, err)
		assert.EqualValues(t, 1, count, "of the ids, the ones with such an error")
		_, due := b.start(store.RedriveTasks, store.NewOperation{Filter: f})
		assert.Equal(t, []any{store.OperationDone, int64(3), int64(3), int64(0)},
			figures(b.finish(due)))
		for _, id := range ids {
			assert.Equal(t, asyncflow.StatusPending, b.task(id).Status)
		}
		assert.Equal(t, asyncflow.StatusFailed, b.task(other).Status)
		report := b.failures(b.lastHour())
		assert.Equal(t, []any{1, "the disk is full"},
			[]any{report.Failures, report.Groups[0].Pattern})
	})
}

// A fingerprint is checked.
func TestBadFingerprint(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	for _, text := range []string{"x", "5D41402ABC4B2A76", "5d41402abc4b2a760"} {
		_, err := b.TaskPage(t.Context(), tenant, store.Filter{Fingerprint: text, Limit: 1})
		require.ErrorContains(t, err, "fingerprint must be 16 hexadecimal digits")
	}
	f := b.lastHour()
	f.Until = f.Since
	_, err := b.GroupFailures(t.Context(), tenant, f)
	assert.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
	f.Type = "nope"
	f.Until = f.Until.Add(time.Second)
	_, err = b.GroupFailures(t.Context(), tenant, f)
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
}

// An error is new if it came with the present version of the type, and failures of the version
// before would show.
func TestFailuresNewSinceVersion(t *testing.T) {
	b := setup(t)
	spec := twoStages()
	b.put(spec)
	b.failWith("pipe", "as always")
	again := b.failWith("pipe", "not mended")
	spec.Stages[0].Priority = 7
	b.put(spec)
	b.failWith("pipe", "as always")
	b.failWith("pipe", "a new one")
	_, err := b.Redrive(t.Context(), tenant, again, store.Redrive{})
	require.NoError(t, err)
	b.settle(b.kind("pipe"), b.leaseAll(b.kind("pipe"), 1)[0],
		asyncflow.Outcome{Kind: asyncflow.OutcomeRejected, Error: "not mended"})
	isNew := map[string]bool{}
	for _, g := range b.failures(b.lastHour()).Groups {
		isNew[g.Pattern] = g.New
	}
	assert.Equal(t, map[string]bool{"as always": false, "a new one": true, "not mended": false},
		isNew, "a task that failed before the deploy, and again, is not new")
	f := b.lastHour()
	require.NoError(t, b.db.QueryRow(t.Context(),
		`SELECT updated_at FROM tenant_acme.task_types WHERE name = 'pipe'`).Scan(&f.Since))
	for _, g := range b.failures(f).Groups {
		assert.False(t, g.New, "%s: the version before had no time to fail", g.Pattern)
	}
}

// An erased error is of no kind: it is without a code and a pattern. Expired tasks failed.
func TestFailuresOfErasedTasks(t *testing.T) {
	b := setup(t)
	b.put(twoStages())
	b.erase(b.failWith("pipe", "secret: of user 17"))
	report := b.failures(b.lastHour())
	require.Len(t, report.Groups, 1)
	assert.Equal(t, []string{"", "", ""}, []string{report.Groups[0].Code,
		report.Groups[0].Pattern, report.Groups[0].Example.Error})
	list, err := b.Tasks(t.Context(), tenant,
		store.Filter{Fingerprint: report.Groups[0].Fingerprint, Limit: 9})
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

// A report ends after many failures, and says so; the types take turns, so that a type with few
// failures is read to its end.
func TestFailuresEnd(t *testing.T) {
	b := setup(t)
	pipe := b.put(longSecond())
	b.past(pipe, 120_000, 120_000) // 12,000 of them failed
	few := twoStages()
	few.Name = "tube"
	b.put(few)
	b.failWith("tube", "the disk is full")
	f := b.lastHour()
	f.Since = f.Since.AddDate(-1, 0, 0)
	begin := time.Now()
	report := b.failures(f)
	t.Logf("read %d failures among %d tasks in %v", report.Failures, report.Searched,
		time.Since(begin))
	assert.GreaterOrEqual(t, report.Failures, store.MaxFailures)
	assert.Less(t, report.Failures, 12_000)
	assert.Equal(t, []string{pipe.Name}, report.Left)
	assert.Contains(t, fmt.Sprint(report.Groups), "the disk is full")
	b.SetFailureTime(0)
	none, err := b.GroupFailures(t.Context(), tenant, f)
	require.NoError(t, err)
	assert.Equal(t, []string{pipe.Name, "tube"}, none.Left)
}
