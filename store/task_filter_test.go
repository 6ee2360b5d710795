package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// places submits tasks and brings each into a state of its own; it returns their ids by state.
func (b *bundle) places(pipe *store.Type) map[string]asyncflow.TaskID {
	b.t.Helper()
	ids := map[string]asyncflow.TaskID{}
	next := func(name string) asyncflow.Lease { // is leased, in its first stage
		ids[name] = b.submit(newTask(`1`))[0].ID
		leases := b.lease(pipe, 1)
		require.Len(b.t, leases, 1)
		require.Equal(b.t, ids[name], leases[0].ID)
		return leases[0]
	}
	settle := func(l asyncflow.Lease, kind asyncflow.OutcomeKind, text string) {
		require.Equal(b.t, store.Settled{},
			b.settle(pipe, l, asyncflow.Outcome{Kind: kind, Error: text}))
	}
	second := func(name string) asyncflow.Lease { // is leased, in its second stage
		settle(next(name), asyncflow.OutcomeDone, "")
		leases := b.lease(pipe, 1)
		require.Len(b.t, leases, 1)
		return leases[0]
	}
	settle(next("failed in first"), asyncflow.OutcomeRejected, "100% Timeout")
	settle(second("failed in second"), asyncflow.OutcomeRejected, "100 times")
	settle(second("succeeded"), asyncflow.OutcomeDone, "")
	settle(second("cancelled in second"), asyncflow.OutcomeRejected, "TIMEOUT")
	_, err := b.Redrive(b.t.Context(), tenant, ids["cancelled in second"], store.Redrive{})
	require.NoError(b.t, err)
	_, err = b.Cancel(b.t.Context(), tenant, ids["cancelled in second"], "a_b")
	require.NoError(b.t, err)
	next("running in first")
	second("running in second")
	waiting := newTask(`1`)
	waiting.Delay = asyncflow.NewDuration(time.Hour)
	ids["waiting in first"] = b.submit(waiting)[0].ID
	// the pause is long there
	settle(second("waiting in second"), asyncflow.OutcomeFailed, "a timeout of the worker")

	settle(second("redriven to first"), asyncflow.OutcomeRejected, "timeout")
	released := second("released in second") // pending tasks would be leased next: it comes last
	settle(next("pending in second"), asyncflow.OutcomeDone, "")
	settle(released, asyncflow.OutcomeReleased, "")
	_, err = b.Redrive(b.t.Context(), tenant, ids["redriven to first"],
		store.Redrive{Stage: "first"})
	require.NoError(b.t, err)
	ids["pending in first"] = b.submit(newTask(`1`))[0].ID
	return ids
}

// longSecond is a task type with retries of the second stage that wait for ten minutes.
func longSecond() asyncflow.TaskType {
	spec := twoStages()
	spec.Stages[1].Retry.Interval = asyncflow.Seconds(-600)
	return spec
}

func TestListFilters(t *testing.T) {
	b := setup(t)
	ids := b.places(b.put(longSecond()))
	for name, c := range map[string]struct {
		filter store.Filter
		want   []string
	}{
		"pending": {store.Filter{Status: asyncflow.StatusPending},
			[]string{"pending in first", "pending in second", "redriven to first",
				"released in second"}},
		"pending in second": {store.Filter{Status: asyncflow.StatusPending, Stage: "second"},
			[]string{"pending in second", "released in second"}},
		"pending in first": {store.Filter{Status: asyncflow.StatusPending, Stage: "first"},
			[]string{"pending in first", "redriven to first"}},
		"any in second": {store.Filter{Stage: "second"},
			[]string{"failed in second", "succeeded", "cancelled in second", "running in second",
				"waiting in second", "pending in second", "released in second"}},
		"any in first": {store.Filter{Stage: "first"},
			[]string{"failed in first", "running in first", "waiting in first", "pending in first",
				"redriven to first"}},
		"waiting": {store.Filter{Status: asyncflow.StatusWaiting, Stage: "first"},
			[]string{"waiting in first"}},
		"running": {store.Filter{Status: asyncflow.StatusRunning, Stage: "second"},
			[]string{"running in second"}},
		"failed": {store.Filter{Status: asyncflow.StatusFailed, Stage: "first"},
			[]string{"failed in first"}},
		"no such stage": {store.Filter{Stage: "third"}, nil},
		"an error": {store.Filter{Error: "timeout"},
			[]string{"failed in first", "waiting in second"}},
		"with a percent": {store.Filter{Error: "100% T"}, []string{"failed in first"}},
		"no wildcards":   {store.Filter{Error: "a%of"}, nil},
		"an underscore":  {store.Filter{Error: "A_B"}, []string{"cancelled in second"}},
		"all of them": {store.Filter{Status: asyncflow.StatusFailed, Stage: "second",
			Error: "TIMES"}, []string{"failed in second"}},
		"and the time": {store.Filter{Error: "timeout", Until: time.Unix(1, 0)}, nil},
	} {
		c.filter.Type, c.filter.Limit = "pipe", 100
		list, err := b.Tasks(t.Context(), tenant, c.filter)
		require.NoError(t, err, name)
		var got []string
		for _, task := range list {
			for known, id := range ids {
				if id == task.ID {
					got = append(got, known)
				}
			}
			one, err := b.Task(t.Context(), tenant, task.ID)
			require.NoError(t, err)
			assert.Equal(t, []any{one.Status, one.Stage}, []any{task.Status, task.Stage},
				"%s: as it is shown alone", name)
		}
		assert.ElementsMatch(t, c.want, got, name)
	}
}

// A page is full while there are more tasks, also where few of many pending tasks are in the
// stage of the filter.
func TestListPagesOfAStage(t *testing.T) {
	b := setup(t)
	pipe := b.put(twoStages())
	b.submitMany(900)
	want := map[string]bool{}
	b.settleAll(pipe, b.lease(pipe, 1000), func(i int, l asyncflow.Lease) asyncflow.Outcome {
		if i%130 > 0 {
			return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased}
		}
		want[l.ID.String()] = true
		return asyncflow.Outcome{Kind: asyncflow.OutcomeDone}
	})
	require.Len(t, want, 7)
	for _, status := range []asyncflow.Status{"", asyncflow.StatusPending} {
		f := store.Filter{Type: "pipe", Status: status, Stage: "second", Limit: 3}
		var sizes []int
		got := map[string]bool{}
		for range 3 {
			page, err := b.Tasks(t.Context(), tenant, f)
			require.NoError(t, err)
			sizes = append(sizes, len(page))
			for _, task := range page {
				got[task.ID.String()] = true
			}
			f.After = page[len(page)-1].ID.Number
		}
		assert.Equal(t, []int{3, 3, 1}, sizes, "status %q", status)
		assert.Equal(t, want, got, "status %q", status)
	}
}
