package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// joining is the outcome of a worker that starts tasks and waits for them.
func joining(join asyncflow.Join, tasks ...asyncflow.SpawnedTask) asyncflow.Outcome {
	o := starting("", tasks...)
	o.Output = nil
	if err := o.Joins(&join); err != nil {
		panic(err)
	}
	return o
}

// setupJoin returns a bundle with the types base and pipe, and a task of pipe that waits for three
// tasks: two of base, and one of pipe between them.
func setupJoin(
	t *testing.T, b *bundle, join asyncflow.Join,
) (pipe *store.Type, id asyncflow.TaskID) {
	t.Helper()
	b.byHand()
	b.put(base())
	pipe = b.put(spawning())
	id = b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(pipe, 1)[0]
	o := joining(join, spawned("base", `1`), spawned("pipe", `2`), spawned("base", `3`))
	require.NoError(t, pipe.CheckSpawn(l, o))
	require.False(t, b.settle(pipe, l, o).Stale)
	require.False(t, b.settleAgain(pipe, b.ending(pipe, l, o)).Stale, "it is this settlement")
	_, same, err := b.WrittenAs(t.Context(), pipe, id, l.Seq, o)
	require.NoError(t, err)
	require.True(t, same)
	for name, other := range map[string]asyncflow.Outcome{
		"no join":      starting("", o.Spawn...),
		"another join": joining(asyncflow.Join{MaxParallel: 77}, o.Spawn...),
		"fewer":        joining(join, o.Spawn[:2]...),
	} {
		if name == "no join" {
			other.Output = nil
		}
		_, same, err := b.WrittenAs(t.Context(), pipe, id, l.Seq, other)
		require.NoError(t, err)
		require.False(t, same, name)
	}
	b.followUp()
	return pipe, id
}

// kind returns a type as it is now.
func (b *bundle) kind(name string) *store.Type {
	b.t.Helper()
	t, err := b.Catalog.Type(tenant, name)
	require.NoError(b.t, err)
	return t
}

// endAll leases n tasks of a type, all that are due, and ends them. A task with a bad context
// fails.
func (b *bundle) endAll(t *store.Type, n int, bad string) {
	b.t.Helper()
	for _, l := range b.leaseAll(t, n) {
		o := output(fmt.Sprintf(`{"of": %s}`, l.Context))
		if string(l.Context) == bad {
			o = badEnd
		}
		require.Zero(b.t, b.settle(t, l, o))
	}
	b.followUp()
}

// A task waits for the tasks that it started. Each passes all stages of its own type, and
// goes on with their results in the order of its list.
func TestJoin(t *testing.T) { eachSet(t, testJoin) }

func testJoin(t *testing.T, b *bundle) {
	pipe, id := setupJoin(t, b, asyncflow.Join{})
	task := b.task(id)
	require.Equal(t, asyncflow.StatusWaiting, task.Status)
	require.Equal(t, asyncflow.WaitChildren, task.WaitsFor)
	require.Equal(t, &asyncflow.Children{Total: 3, Pending: 3}, task.Children)
	require.Equal(t, []store.SpawnedCount{{Type: "base", Count: 2}, {Type: "pipe", Count: 1}},
		task.Spawned)
	require.Equal(t, []string{`1`, `3`}, b.startedBy("base", id))
	require.Equal(t, []string{`2`}, b.startedBy("pipe", id))

	b.endAll(b.kind("base"), 2, "")
	b.endAll(pipe, 1, "")
	task = b.task(id)
	require.Equal(t, &asyncflow.Children{Total: 3, Pending: 1, Succeeded: 2}, task.Children,
		"the other one has another stage")
	b.endAll(pipe, 1, "")
	l := b.leaseAll(pipe, 1)[0]
	require.Equal(t, id, l.ID)
	require.Equal(t, pipe.Stages[1].Name, l.Stage)
	require.Equal(t, `{"count":3,"succeeded":3,"failed":0,"cancelled":0,"results":[{"of": 1},`+
		`{"of": {"of": 2}},{"of": 3}]}`, string(l.Context))
	results, count, err := b.ChildResults(t.Context(), tenant, id, 0, 1, 2)
	require.NoError(t, err)
	require.Equal(t, 3, count)
	require.Equal(t, "pipe", results[0].ID.Type)
	require.Equal(t, `{"of": {"of": 2}}`, string(results[0].Output))
	require.Equal(t, `{"of": 3}`, string(results[1].Output))
	b.settle(pipe, l, goodEnd)
	require.Equal(t, tallied{Submitted: 2, Attempts: 4, Succeeded: 2},
		first(b.tallies(tenant, "pipe")))
	b.checkTokens("pipe")
	b.checkTokens("base")
	require.Zero(t, b.sweep())
}

// Once a task that is awaited fails, the others are cancelled and the parent fails. Its redrive
// redrives what failed.
func TestJoinFailsFast(t *testing.T) { eachSet(t, testJoinFailsFast) }

func testJoinFailsFast(t *testing.T, b *bundle) {
	pipe, id := setupJoin(t, b, asyncflow.Join{})
	base := b.kind("base")
	begun := b.leaseAll(pipe, 1)
	b.endAll(base, 2, `3`)
	b.followUp()
	task := b.task(id)
	require.Equal(t, asyncflow.StatusFailed, task.Status)
	failed, err := b.Tasks(t.Context(), tenant,
		store.Filter{Type: "base", Status: asyncflow.StatusFailed, Limit: 2})
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("of 3 children, 1 failed and 1 were cancelled; the first to fail "+
		"is %s (index 2): no", failed[0].ID), task.Error)
	require.Equal(t, asyncflow.StatusCancelled, b.task(begun[0].ID).Status)
	_, err = b.Redrive(t.Context(), tenant, begun[0].ID, store.Redrive{})
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "its parent is over")

	_, err = b.Redrive(t.Context(), tenant, id, store.Redrive{})
	require.NoError(t, err)
	b.followUp()
	require.Equal(t, &asyncflow.Children{Total: 3, Pending: 2, Succeeded: 1}, b.task(id).Children)
	b.endAll(base, 1, "")
	b.endAll(pipe, 1, "")
	b.endAll(pipe, 1, "")
	l := b.leaseAll(pipe, 1)[0]
	require.Equal(t, id, l.ID)
	require.Contains(t, string(l.Context), `"results":[{"of": 1},{"of": {"of": 2}},{"of": 3}]`)
	b.checkTokens("pipe")
	b.checkTokens("base")
	require.Zero(t, b.sweep())
}

// A row of the outbox that is due in a moment is handled then, though nobody says so again: the
// clock of its writer may be ahead of that of the node that heard of it.
func TestFollowUpComesBackOnceARowIsDue(t *testing.T) {
	b := setup(t)
	pipe, id := setupJoin(t, b, asyncflow.Join{})
	b.endAll(b.kind("base"), 2, "")
	b.endAll(pipe, 1, "")
	require.Zero(t, b.settle(pipe, b.leaseAll(pipe, 1)[0], output(`2`)))
	b.exec(`UPDATE tenant_acme.outbox SET due = clock_timestamp() + interval '200 ms'`)
	b.followUp()
	require.Equal(t, id, b.leaseAll(pipe, 1)[0].ID)
}

// If the answer to the COMMIT of a settlement was lost, its repetition says what is left to do: the
// first try said nothing.
func TestSettlementWithoutAnAnswerIsFollowedUp(t *testing.T) {
	b := setup(t)
	setupJoin(t, b, asyncflow.Join{})
	base := b.kind("base")
	news := b.Wakeups.Listen(store.Topics{FollowUps: true})
	l := b.leaseAll(base, 2)[0]
	require.Zero(t, b.settle(base, l, output(`1`)))
	require.Contains(t, news.Read().FollowUps, tenant)
	require.False(t, b.settleAgain(base, b.ending(base, l, output(`1`))).Stale)
	require.Contains(t, news.Read().FollowUps, tenant)
}

// No more than max_parallel of the tasks are under way at once. With all_settled and settled
// results, the next stage gets how each ended.
func TestJoinSettled(t *testing.T) { eachSet(t, testJoinSettled) }

func testJoinSettled(t *testing.T, b *bundle) {
	pipe, id := setupJoin(t, b, asyncflow.Join{OnChildFailure: allSettled, MaxParallel: 1,
		Results: asyncflow.ResultsSettled})
	base := b.kind("base")
	require.Equal(t, &asyncflow.Children{Total: 3, Pending: 1, Waiting: 2}, b.task(id).Children)
	b.endAll(base, 1, `1`)
	b.endAll(base, 1, ``)
	b.endAll(pipe, 1, ``)
	b.endAll(pipe, 1, ``)
	l := b.leaseAll(pipe, 1)[0]
	require.Equal(t, id, l.ID)
	require.Contains(t, string(l.Context), `[{"index":0,"status":"failed","id":"base.1.`)
	require.Contains(t, string(l.Context), `{"index":1,"status":"succeeded","id":"pipe.1.`)
	require.Contains(t, string(l.Context), `"output":{"of": 3}}]`)
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.spawns WHERE tasks IS NOT NULL`))
}

// The worker's choice of the next stage counts after the join. What isn't allowed is refused.
func TestJoinChoosesAndIsRefused(t *testing.T) {
	b := setup(t)
	b.byHand()
	kind := spawning()
	kind.Stages[0].Next = []string{kind.Stages[1].Name, "finish"}
	pipe := b.put(kind.WithDefaults())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(pipe, 1)[0]
	o := joining(asyncflow.Join{}, spawned("pipe", `1`))
	o.Finish = true
	b.settle(pipe, l, o)
	b.followUp()
	child := b.leaseAll(pipe, 1)[0]
	b.settle(pipe, child, asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Finish: true})
	b.followUp()
	task := b.task(id)
	require.Equal(t, asyncflow.StatusSucceeded, task.Status)
	require.Equal(t, `{"count":1,"succeeded":1,"failed":0,"cancelled":0,"results":[null]}`,
		string(task.Result))
	require.Equal(t, 1, task.Steps)

	keyed := spawned("pipe", `1`)
	keyed.Key = "k"
	require.Equal(t, asyncflow.CodeSpawn,
		asyncflow.CodeOf(pipe.CheckSpawn(l, joining(asyncflow.Join{}, keyed))))
	with := output(`1`)
	require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(with.Joins(&asyncflow.Join{})))
	with = goodEnd
	require.Equal(t, asyncflow.CodeInvalid,
		asyncflow.CodeOf(with.Joins(&asyncflow.Join{MaxParallel: -1})))
	require.NoError(t, with.Joins(&asyncflow.Join{}))
	require.Equal(t, asyncflow.NoResults, with.Output, "without tasks")
}

// A tree of four levels: the gate at the lease knows all of its ancestors.
func TestJoinNested(t *testing.T) {
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	top := newTask(`0`)
	top.Options.Priority = asyncflow.Priority{7}
	ids := []asyncflow.TaskID{b.submit(top)[0].ID}
	deeper := func() {
		l := b.leaseAll(pipe, 1)[0]
		require.Equal(t, ids[len(ids)-1], l.ID)
		b.settle(pipe, l, joining(asyncflow.Join{}, spawned("pipe", `1`)))
		b.followUp()
		all, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: l.ID, Limit: 2})
		require.NoError(t, err)
		require.Len(t, all, 1)
		ids = append(ids, all[0].ID)
	}
	deeper()
	deeper()
	deeper()
	require.Equal(t, &asyncflow.TreeCounts{Levels: 3, Total: 3}, b.task(ids[0]).Tree)
	require.Equal(t, []string{"pipe"}, b.task(ids[0]).ChildTypes)
	require.Nil(t, b.task(ids[2]).Tree, "its child has none")
	require.Equal(t, asyncflow.Priority{7}, b.task(ids[3]).Options.Priority)
	_, err := b.PauseTree(t.Context(), tenant, ids[0], "a while")
	require.NoError(t, err)
	b.followUp()
	l := b.leaseAll(pipe, 1)
	begun, err := b.ParkHalted(t.Context(), pipe, l)
	require.NoError(t, err)
	require.Empty(t, begun, "an ancestor is paused")
	require.Equal(t, asyncflow.WaitParent, b.task(ids[3]).WaitsFor)
	_, err = b.ResumeTree(t.Context(), tenant, ids[0])
	require.NoError(t, err)
	b.followUp()
	l = b.leaseAll(pipe, 1)
	require.Len(t, l, 1)
	begun, err = b.ParkHalted(t.Context(), pipe, l)
	require.NoError(t, err)
	require.Len(t, begun, 1)
	b.loseAll(pipe, 1)

	_, err = b.Cancel(t.Context(), tenant, ids[0], "no more")
	require.NoError(t, err)
	l = b.leaseAll(pipe, 1)
	begun, err = b.ParkHalted(t.Context(), pipe, l)
	require.NoError(t, err)
	require.Empty(t, begun, "an ancestor is cancelled")
	b.followUp()
	require.Equal(t, asyncflow.StatusCancelled, b.task(ids[0]).Status)
	for _, id := range ids[1:] {
		require.Contains(t, []asyncflow.Status{asyncflow.StatusCancelled, asyncflow.StatusFailed},
			b.task(id).Status, "its child may have been cancelled before")
	}
	b.checkTokens("pipe")

	_, err = b.Redrive(t.Context(), tenant, ids[0], store.Redrive{})
	require.NoError(t, err)
	b.followUp()
	for i, id := range ids {
		want := asyncflow.StatusWaiting
		if i == 3 {
			want = asyncflow.StatusPending
		}
		require.Equal(t, want, b.task(id).Status, "%d", i)
	}
	for range 5 {
		b.endAll(pipe, 1, ``)
	}
	for _, id := range ids {
		require.Equal(t, asyncflow.StatusSucceeded, b.task(id).Status)
	}
	require.Zero(t, b.sweep())
}

// If a node dies at any statement, or the answer to its COMMIT is lost, another one goes on: each
// task is made once, and the parent joins once.
func TestJoinSurvivesCrashes(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.byHand()
	b.SetChunks(2, 2, 2)
	b.put(base())
	pipe := b.put(spawning())
	second, line := mortal(t, b)
	second.SetChunks(2, 2, 2)
	for at, lost := range line.deaths(t, 5) {
		id := b.submit(newTask(`0`))[0].ID
		b.settle(pipe, b.leaseAll(pipe, 1)[0], joining(asyncflow.Join{}, spawned("base", `0`),
			spawned("base", `1`), spawned("base", `2`)))
		follow := func() {
			line.arm(at, lost, true)
			for more := true; more; {
				var err error
				if more, err = second.FollowUp(t.Context(), tenant); err != nil {
					break
				}
			}
			line.mend()
		}
		settled := func(what string, done func() bool) {
			eventually(t, what, func() bool {
				b.exec(`UPDATE tenant_acme.outbox SET due = now()
					WHERE seq = ANY (ARRAY(SELECT seq FROM tenant_acme.outbox FOR UPDATE SKIP LOCKED))`)
				b.followUp()
				return done()
			})
		}
		follow()
		settled("all are made", func() bool { return len(b.startedBy("base", id)) == 3 })
		for _, l := range b.leaseAll(b.kind("base"), 3) {
			b.settle(b.kind("base"), l, output(string(l.Context)))
		}
		follow()
		settled("it has joined", func() bool {
			return b.task(id).Stage == pipe.Stages[1].Name
		})
		l := b.leaseAll(pipe, 1)
		require.Equal(t, `{"count":3,"succeeded":3,"failed":0,"cancelled":0,"results":[0,1,2]}`,
			string(l[0].Context), "died at statement %d", at)
		b.settle(pipe, l[0], goodEnd)
	}
	b.checkTokens("base")
	b.checkTokens("pipe")
}

// A task that starts too many tasks in all its attempts is refused, and so is one with which its
// tree would grow too large.
func TestSpawnBounds(t *testing.T) {
	b := setup(t)
	pipe, id := setupJoin(t, b, asyncflow.Join{})
	parent := b.leaseAll(pipe, 1)[0]
	o := joining(asyncflow.Join{}, spawned("pipe", `1`), spawned("pipe", `2`))
	// with its three and the two
	for more, code := range []asyncflow.Code{"", asyncflow.CodeSpawn} {
		b.exec(`UPDATE tenant_acme.fan_outs SET tree = $1`, asyncflow.MaxTree-5+more)
		err := b.BoundSpawn(t.Context(), pipe, parent.ID, parent.Seq, o)
		require.Equal(t, code, asyncflow.CodeOf(err), "%d", more)
	}
	require.Equal(t, asyncflow.MaxTree-4, b.count(`SELECT tree FROM tenant_acme.fan_outs`),
		"what is refused doesn't count")
	err := b.GrowTree(t.Context(), pipe, parent.Options, 2)
	require.ErrorContains(t, err, "would have more than 100000 tasks")
	require.NoError(t, b.GrowTree(t.Context(), pipe, asyncflow.Options{}, 10_000),
		"a task that is nobody's child")

	for count, code := range map[int]asyncflow.Code{
		asyncflow.MaxStarted - 4: asyncflow.CodeSpawn, // and three before
		asyncflow.MaxStarted - 5: "",
	} {
		b.exec(`DELETE FROM tenant_acme.spawns WHERE seq = 2`)
		b.exec(`INSERT INTO tenant_acme.spawns (type, id, seq, depth, count, hash)
			VALUES ($1, $2, 2, 1, $3, '')`, pipe.Number(), id.Number, count)
		err := b.BoundSpawn(t.Context(), pipe, id, 11, starting("", o.Spawn...))
		require.Equal(t, code, asyncflow.CodeOf(err), "%d", count)
	}
}

// Tasks of attempts that were lost, and tasks that others were started in place of, don't count in
// a tree for ever. It is counted anew once no attempt can be on its way.
func TestATreeIsCountedAnew(t *testing.T) { eachSet(t, testATreeIsCountedAnew) }

func testATreeIsCountedAnew(t *testing.T, b *bundle) {
	pipe, _ := setupJoin(t, b, asyncflow.Join{})
	middle := b.leaseAll(pipe, 1)[0]
	b.startIn(middle, asyncflow.Join{}, spawned("pipe", `1`), spawned("base", `2`),
		spawned("pipe", `3`))
	b.followUp()
	lower := b.leaseAll(pipe, 2)
	for _, l := range lower {
		b.startIn(l, asyncflow.Join{}, spawned("base", `1`), spawned("base", `2`))
	}
	b.followUp()
	_, err := b.Cancel(t.Context(), tenant, lower[0].ID, "")
	require.NoError(t, err)
	b.followUp()
	require.Equal(t, asyncflow.StatusFailed, b.task(middle.ID).Status)
	_, err = b.Redrive(t.Context(), tenant, middle.ID, store.Redrive{AllChildren: true})
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "the root failed, too")

	const root = ` FROM tenant_acme.fan_outs ORDER BY id, seq LIMIT 1`
	counted := func(before int, ago string) error {
		b.exec(`UPDATE tenant_acme.fan_outs SET tree = $1, tree_at = now() - $2::interval
			WHERE id = (SELECT id`+root+`)`, before, ago)
		return b.GrowTree(t.Context(), pipe, middle.Options, 90_000)
	}
	require.ErrorContains(t, counted(asyncflow.MaxTree-3, "1 s"), "would have more than")
	require.NoError(t, counted(asyncflow.MaxTree-3, "2 min"))
	require.Equal(t, 3+2+2+90_000, b.count(`SELECT tree`+root))
	require.ErrorContains(t, counted(asyncflow.MaxTree-3, "59 s"), "would have more than",
		"attempts of the last minute may come")
	b.exec(`UPDATE tenant_acme.fan_outs SET tree_at = NULL`)
	require.Error(t, b.GrowTree(t.Context(), pipe, middle.Options, 90_000))
	require.Equal(t, 1, b.count(`SELECT count(tree_at) FROM tenant_acme.fan_outs`),
		"an older node counted it: the minute begins")
}

// While a task waits for tasks of a type, the type is deleted by cascade only. What isn't made by
// then counts as cancelled.
func TestJoinOfADeletedType(t *testing.T) {
	b := setup(t)
	pipe, id := setupJoin(t, b, asyncflow.Join{OnChildFailure: allSettled, MaxParallel: 1})
	_, err := b.PauseTree(t.Context(), tenant, id, "")
	require.NoError(t, err)
	b.followUp()
	_, err = b.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	b.followUp()
	l := b.leaseAll(b.kind("base"), 1)[0]
	_, err = b.PauseTree(t.Context(), tenant, id, "")
	require.NoError(t, err)
	b.settle(b.kind("base"), l, output(`1`))
	b.followUp()
	err = b.DeleteTaskType(t.Context(), tenant, "base", false)
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	require.ErrorContains(t, err, "tasks wait for those of task type base (1 of pipe)")
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "base", true))
	_, err = b.ResumeTree(t.Context(), tenant, id)
	require.NoError(t, err)
	b.followUp()
	require.Equal(t, &asyncflow.Children{Total: 3, Pending: 1, Succeeded: 1, Cancelled: 1},
		b.task(id).Children)
	b.endAll(pipe, 1, ``)
	b.endAll(pipe, 1, ``)
	next := b.leaseAll(pipe, 1)[0]
	require.Equal(t, id, next.ID)
	require.Equal(t, `{"count":3,"succeeded":2,"failed":0,"cancelled":1,"results":[null,`+
		`{"of": {"of": 2}},null]}`, string(next.Context))
}

// A transaction that cancels a task while it also follows up its tasks leaves them stopped.
func TestCancelOfAJoinThatIsFollowedUp(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0], joining(asyncflow.Join{}, spawned("pipe", `1`)))
	b.followUp()
	child := b.leaseAll(pipe, 1)[0]
	b.settle(pipe, child, joining(asyncflow.Join{}, spawned("base", `2`), spawned("base", `3`)))
	b.followUp()
	_, err := b.Cancel(t.Context(), tenant, id, "")
	require.NoError(t, err)
	_, err = b.PauseTree(t.Context(), tenant, child.ID, "")
	require.NoError(t, err)
	_, err = b.FollowUpRows(t.Context(), tenant, 10)
	require.NoError(t, err)
	require.Equal(t, asyncflow.StatusCancelled, b.task(child.ID).Status)
	require.Equal(t, 2, b.count(`SELECT count(*) FROM tenant_acme.fan_outs WHERE stopped`))
	b.followUp()
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.wait`))
	b.checkTokens("base")
}
