package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// setupFarJoin is setupJoin with two children, of a type with tables of its own.
func setupFarJoin(
	t *testing.T, b *bundle, join asyncflow.Join,
) (pipe *store.Type, id asyncflow.TaskID) {
	t.Helper()
	pipe = b.put(spawning())
	id = b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0],
		joining(join, spawned("base", `1`), spawned("base", `2`)))
	b.followUp()
	return pipe, id
}

// dropFirst drops the first roll of a type.
func (b *bundle) dropFirst(name string) (dropped bool) {
	b.t.Helper()
	opened, err := b.OpenRoll(b.t.Context(), b.kind(name).Set())
	require.NoError(b.t, err)
	require.True(b.t, opened)
	_, err = b.SealRoll(b.t.Context(), b.kind(name).Set(), 1)
	require.NoError(b.t, err)
	_, err = b.DrainRoll(b.t.Context(), b.kind(name).Set())
	require.NoError(b.t, err)
	_, err = b.ClearRoll(b.t.Context(), b.kind(name).Set(), 1)
	require.NoError(b.t, err)
	_, err = b.IdleRoll(b.t.Context(), b.kind(name).Set(), 1)
	require.NoError(b.t, err)
	return b.dropNow(name)
}

// dropNow tries to drop the oldest roll of a type, which is idle.
func (b *bundle) dropNow(name string) bool {
	b.t.Helper()
	dropped, err := b.DropRoll(b.t.Context(), b.kind(name).Set(), b.Clock.Now())
	require.NoError(b.t, err)
	return dropped
}

// A node that doesn't know the newest roll of the children's type, or not even the type, joins all
// the same with all results.
func TestJoinOnANodeThatIsBehind(t *testing.T) {
	for name, roll := range map[string]bool{"a new type": false, "a new roll": true} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.byHand()
			b.put(spawning())
			var far *bundle
			if roll {
				b.put(withOwnSet(base()))
				far = behind(t, b)
				_, err := b.OpenRoll(t.Context(), b.kind("base").Set())
				require.NoError(t, err)
			} else {
				far = behind(t, b)
				b.put(withOwnSet(base()))
			}
			pipe, id := setupFarJoin(t, b, asyncflow.Join{})
			for _, l := range b.leaseAll(b.kind("base"), 2) {
				b.settle(b.kind("base"), l, output(string(l.Context)))
			}
			far.followUp()
			l := b.leaseAll(pipe, 1)[0]
			require.Equal(t, id, l.ID)
			require.Equal(t, `{"count":2,"succeeded":2,"failed":0,"cancelled":0,"results":[1,2]}`,
				string(l.Context))
		})
	}
}

// A redriven task without its children, which are no longer kept, fails again: it doesn't wait for
// ever.
func TestRedriveOfAJoinWithoutItsChildren(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(withOwnSet(base()))
	pipe, id := setupFarJoin(t, b, asyncflow.Join{OnChildFailure: asyncflow.ChildFailure{
		Policy: asyncflow.Tolerate}})
	b.endAll(b.kind("base"), 2, `2`)
	require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
	require.True(t, b.dropFirst("base"))
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.followUp()
	require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
	require.Contains(t, b.task(id).Error, "of 2 children, 1 failed")

	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{AllChildren: true})
	require.NoError(t, err)
	require.Equal(t, id, b.leaseAll(pipe, 1)[0].ID)
}

// The children of a task that is in line or runs after its join are kept, as their results may be
// read by URL.
func TestJoinKeepsItsChildren(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(withOwnSet(base()))
	pipe, _ := setupFarJoin(t, b, asyncflow.Join{})
	b.endAll(b.kind("base"), 2, ``)
	require.False(t, b.dropFirst("base"), "the parent is in line")
	l := b.leaseAll(pipe, 1)[0]
	require.False(t, b.dropNow("base"), "the parent runs")
	b.settle(pipe, l, goodEnd)
	require.True(t, b.dropNow("base"))
}

// A resume goes down to all levels, also if their types lost the right meanwhile to start tasks.
func TestResumeBelowAChangedType(t *testing.T) {
	b := setup(t)
	b.byHand()
	kind := base()
	kind.Stages[0].Spawn = []string{"leaf"}
	b.put(kind.WithDefaults())
	leaf := base()
	leaf.Name = "leaf"
	b.put(leaf)
	_, id := setupFarJoin(t, b, asyncflow.Join{})
	for _, l := range b.leaseAll(b.kind("base"), 2) {
		b.settle(b.kind("base"), l, joining(asyncflow.Join{}, spawned("leaf", `1`)))
	}
	b.followUp()
	_, err := b.PauseTree(t.Context(), tenant, id, "a while")
	require.NoError(t, err)
	b.followUp()
	begun, err := b.ParkHalted(t.Context(), b.kind("leaf"), b.leaseAll(b.kind("leaf"), 2))
	require.NoError(t, err)
	require.Empty(t, begun)
	b.put(base())
	_, err = b.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	b.followUp()
	b.endAll(b.kind("leaf"), 2, "")
	require.Equal(t, asyncflow.StatusPending, b.task(id).Status)
}

// A node that doesn't know the type of the children yet gives their results all the same.
func TestResultsOfATypeThatIsNew(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(spawning())
	far := behind(t, b)
	b.put(withOwnSet(base()))
	_, id := setupFarJoin(t, b, asyncflow.Join{})
	b.endAll(b.kind("base"), 2, ``)
	results, _, err := far.ChildResults(t.Context(), tenant, id, 0, 0, 2)
	require.NoError(t, err)
	require.Equal(t, []string{`{"of": 1}`, `{"of": 2}`},
		[]string{string(results[0].Output), string(results[1].Output)})
}

// If no failed child can be redriven, the redrive of their parent fails again: it doesn't go on as
// if they had succeeded.
func TestRedriveOfAJoinWhoseTypeIsGone(t *testing.T) {
	for name, made := range map[string]bool{"after they were made": true, "before": false} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.byHand()
			b.put(base())
			pipe := b.put(spawning())
			id := b.submit(newTask(`0`))[0].ID
			b.settle(pipe, b.leaseAll(pipe, 1)[0], joining(asyncflow.Join{}, spawned("base", `1`)))
			if made {
				b.followUp()
				b.endAll(b.kind("base"), 1, `1`)
			}
			require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "base", true))
			b.followUp()
			require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
			_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{})
			require.NoError(t, err)
			b.followUp()
			require.Equal(t, asyncflow.StatusFailed, b.task(id).Status)
			b.checkTokens("pipe")
		})
	}
}

// The type of a cancelled task stays until all of its children are cancelled: without the mark of
// their parent, they would begin.
func TestDeleteATypeWhoseChildrenAreCancelled(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	_, id := setupFarJoin(t, b, asyncflow.Join{})
	_, err := b.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	err = b.DeleteTaskType(t.Context(), tenant, "pipe", true)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "still being cancelled")
	b.followUp()
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "pipe", true))
	require.Empty(t, b.lease(b.kind("base"), 2))
	b.checkTokens("base")
}

// A transaction reads few long lists, however many tasks wait for their next child.
func TestJoinReadsFewLists(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	long := spawned("base", `1`)
	long.FlowKey = strings.Repeat("k", asyncflow.MaxFlowKey)
	tasks := slices.Repeat([]asyncflow.SpawnedTask{long}, 5000)
	for range 8 {
		b.submit(newTask(`0`))
	}
	for _, l := range b.leaseAll(pipe, 8) {
		b.settle(pipe, l, joining(asyncflow.Join{MaxParallel: 1}, tasks...))
	}
	begun := `SELECT count(*) FROM tenant_acme.fan_outs WHERE spawned = 1`
	_, err := b.FollowUp(t.Context(), tenant)
	require.NoError(t, err)
	require.Less(t, b.count(begun), 5)
	b.followUp()
	require.Equal(t, 8, b.count(begun))
}
