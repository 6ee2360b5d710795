package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// spawning is a type with a stage that may start tasks of its own type and of the type base.
func spawning() asyncflow.TaskType {
	t := twoStages()
	t.Stages[0].Spawn = []string{"pipe", "base"}
	return t.WithDefaults()
}

// starting is the outcome of a worker that starts tasks.
func starting(output string, tasks ...asyncflow.SpawnedTask) asyncflow.Outcome {
	return asyncflow.Outcome{Kind: asyncflow.OutcomeDone, Output: json.RawMessage(output),
		Status: 200, Spawn: tasks}
}

func spawned(taskType, context string) asyncflow.SpawnedTask {
	return asyncflow.SpawnedTask{Type: taskType, Context: json.RawMessage(context)}
}

// startedBy returns the contexts of the tasks of a type that a task started.
func (b *bundle) startedBy(taskType string, id asyncflow.TaskID) []string {
	b.t.Helper()
	all, err := b.Tasks(b.t.Context(), tenant,
		store.Filter{Type: taskType, Parent: id, Limit: 20_000})
	require.NoError(b.t, err)
	contexts := make([]string, len(all))
	for i, one := range all {
		require.Equal(b.t, id.String(), one.Options.Spawned.Parent)
		contexts[len(all)-1-i] = string(b.task(one.ID).Context)
	}
	return contexts
}

// An attempt that is done starts its tasks once, however its settlement is repeated. They live on
// by themselves.
func TestSpawn(t *testing.T) { eachSet(t, testSpawn) }

func testSpawn(t *testing.T, b *bundle) {
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(pipe, 1)[0]
	o := starting(`{"a": 1}`, spawned("base", `{"b":  "<&>"}`), spawned("pipe", `1`),
		asyncflow.SpawnedTask{Type: "pipe", Context: json.RawMessage(`2`),
			Delay: asyncflow.NewDuration(time.Hour)})
	require.NoError(t, pipe.CheckSpawn(l, o))
	require.False(t, b.settle(pipe, l, o).Stale)
	b.followUp()
	require.Equal(t, []string{`{"b":  "<&>"}`}, b.startedBy("base", id), "byte for byte")
	require.Equal(t, []string{`1`, `2`}, b.startedBy("pipe", id))
	require.Equal(t, []store.SpawnedCount{{Type: "base", Count: 1}, {Type: "pipe", Count: 2}},
		b.task(id).Spawned)

	require.False(t, b.settleAgain(pipe, b.ending(pipe, l, o)).Stale, "it is this settlement")
	for name, other := range map[string]asyncflow.Outcome{
		"none":    starting(`{"a": 1}`),
		"fewer":   starting(`{"a": 1}`, o.Spawn[:2]...),
		"another": starting(`{"a": 1}`, o.Spawn[0], o.Spawn[1], spawned("pipe", `2`)),
	} {
		require.True(t, b.settleAgain(pipe, b.ending(pipe, l, other)).Stale, name)
		_, same, err := b.WrittenAs(t.Context(), pipe, id, l.Seq, other)
		require.NoError(t, err)
		require.False(t, same, name)
	}
	_, same, err := b.WrittenAs(t.Context(), pipe, id, l.Seq, o)
	require.NoError(t, err)
	require.True(t, same)
	b.followUp()
	require.Len(t, b.startedBy("pipe", id), 2)
	require.Equal(t, tallied{Submitted: 3, Attempts: 1}, first(b.tallies(tenant, "pipe")))

	_, err = b.Cancel(t.Context(), tenant, id, "no more")
	require.NoError(t, err)
	var due []string
	for _, l := range b.leaseAll(pipe, 1) {
		due = append(due, string(l.Context))
		require.Equal(t, 2, l.Options.SpawnDepth())
	}
	require.Equal(t, []string{`1`}, due, "they live on by themselves")
	b.checkTokens("pipe")
	b.checkTokens("base")
}

// The key of an existing task, or of an earlier one in the list, stands for that task.
func TestSpawnWithKeys(t *testing.T) { eachSet(t, testSpawnWithKeys) }

func testSpawnWithKeys(t *testing.T, b *bundle) {
	b.byHand()
	pipe := b.put(spawning())
	task := newTask(`0`)
	task.Options.Key = "here"
	there := b.submit(task)[0].ID
	id := b.submit(newTask(`1`))[0].ID
	withKey := func(key, context string) asyncflow.SpawnedTask {
		s := spawned("pipe", context)
		s.Key = key
		return s
	}
	for _, l := range b.leaseAll(pipe, 2) {
		if l.ID == id {
			b.settle(pipe, l, starting(`1`, withKey("b", `2`), withKey("here", `"another"`),
				withKey("a", `3`), withKey("b", `4`)))
		}
	}
	b.followUp()
	all, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "pipe", Parent: id, Limit: 10})
	require.NoError(t, err)
	var keys []string
	for _, one := range all {
		keys = append(keys, one.Options.Key)
	}
	require.ElementsMatch(t, []string{"here", "a", "b"}, keys)
	require.Equal(t, there, all[2].ID)
	require.Equal(t, []store.SpawnedCount{{Type: "pipe", Count: 4}}, b.task(id).Spawned)
	again := newTask(`2`)
	again.Options.Key = "b"
	result := b.submit(again)[0]
	require.True(t, result.Existing, "a submit finds the task by its key")
}

// Tasks are made in several transactions, two in each. If a node dies at any statement, or the
// answer to its COMMIT is lost, another one goes on: each task is made once.
func TestSpawnSurvivesCrashes(t *testing.T) {
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
		var tasks []asyncflow.SpawnedTask
		var want []string
		for i := range longform.Size(3, 5) {
			tasks = append(tasks, spawned("base", fmt.Sprint(i)))
			tasks[i].Key = fmt.Sprintf("%d of %s", i, id)
			want = append(want, fmt.Sprint(i))
		}
		require.False(t, b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, tasks...)).Stale)
		line.arm(at, lost, true)
		for more := true; more; {
			var err error
			if more, err = second.FollowUp(t.Context(), tenant); err != nil {
				break
			}
		}
		line.mend()
		// Postgres may not have noticed the death yet
		eventually(t, "all are made", func() bool {
			b.exec(`UPDATE tenant_acme.outbox SET due = now()
				WHERE seq = ANY (ARRAY(SELECT seq FROM tenant_acme.outbox FOR UPDATE SKIP LOCKED))`)
			b.followUp()
			return len(b.startedBy("base", id)) == len(want)
		})
		require.ElementsMatch(t, want, b.startedBy("base", id), "died at statement %d", at)
		require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.outbox`))
		b.settle(pipe, b.leaseAll(pipe, 1)[0], goodEnd)
	}
	b.checkTokens("base")
}

// The settlement and its tasks exist both or not at all, also if the node dies while it settles.
func TestSpawnExistsWithItsSettlement(t *testing.T) {
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	second, line := mortal(t, b)
	for _, lost := range []bool{false, true} {
		id := b.submit(newTask(`0`))[0].ID
		l := b.leaseAll(pipe, 1)[0]
		line.arm(1, lost, true)
		e := b.ending(pipe, l, starting(`1`, spawned("pipe", `2`)))
		require.Error(t, second.commit([]*store.Writes{{Type: pipe, Settled: []*store.Ending{e}}}))
		line.mend()
		require.False(t, b.settleAgain(pipe, e).Stale)
		b.followUp()
		require.Equal(t, []string{`2`}, b.startedBy("pipe", id))
		for _, l := range b.leaseAll(pipe, 2) {
			_, err := b.Cancel(t.Context(), tenant, l.ID, "no more")
			require.NoError(t, err)
		}
	}
}

// A late report of a lost attempt starts its tasks once. One that comes after the begin of the next
// attempt starts none.
func TestSpawnOfALateReport(t *testing.T) { eachSet(t, testSpawnOfALateReport) }

func testSpawnOfALateReport(t *testing.T, b *bundle) {
	b.byHand()
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	l := b.leaseAll(pipe, 1)[0]
	b.loseAll(pipe, 1)
	o := starting(`1`, spawned("pipe", `2`))
	for range 2 {
		_, taken, err := b.SettleLate(t.Context(), pipe, id, l.Seq, o)
		require.NoError(t, err)
		require.True(t, taken)
	}
	_, _, err := b.SettleLate(t.Context(), pipe, id, l.Seq, starting(`1`, spawned("pipe", `3`)))
	require.Equal(t, asyncflow.CodeConflict, asyncflow.CodeOf(err))
	b.followUp()
	require.Equal(t, []string{`2`}, b.startedBy("pipe", id))

	refused := starting(`1`, spawned("none", `2`))
	other := b.submit(newTask(`0`))[0].ID
	for _, l := range b.leaseAll(pipe, 3) {
		if l.ID == other {
			b.exec(`UPDATE tenant_acme.lease SET until = now() - interval '1 s' WHERE id = $1`,
				l.ID.Number)
			_, err := b.Rescue(t.Context(), pipe)
			require.NoError(t, err)
			_, _, err = b.SettleLate(t.Context(), pipe, other, l.Seq, refused)
			require.Equal(t, asyncflow.CodeSpawn, asyncflow.CodeOf(err))
			again := b.leaseAll(pipe, 1)[0]
			require.Equal(t, other, again.ID)
			_, taken, err := b.SettleLate(t.Context(), pipe, other, l.Seq, o)
			require.NoError(t, err)
			require.False(t, taken)
		}
	}
	b.followUp()
	require.Empty(t, b.startedBy("pipe", other))
}

// A type that is deleted before its tasks are made gets none. The other tasks are made.
func TestSpawnOfADeletedType(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, spawned("base", `2`), spawned("pipe", `3`)))
	require.NoError(t, b.DeleteTaskType(t.Context(), tenant, "base", false))
	b.followUp()
	require.Equal(t, []string{`3`}, b.startedBy("pipe", id))
	require.Equal(t, []store.SpawnedCount{{Type: "pipe", Count: 1}}, b.task(id).Spawned)
}

// Two reports with different tasks race, on two nodes that also follow up at once: the tasks of the
// one that counts are made, each once.
func TestSpawnRaces(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	far := open(t, b.url, "far")
	far.byHand()
	for range 20 {
		id := b.submit(newTask(`0`))[0].ID
		l := b.leaseAll(pipe, 1)[0]
		lists := [][]asyncflow.SpawnedTask{{spawned("pipe", `1`), spawned("pipe", `2`)},
			{spawned("pipe", `3`), spawned("pipe", `4`)}}
		counts := make([]bool, 2)
		var all sync.WaitGroup
		for i, node := range []*bundle{b, far} {
			all.Go(func() {
				counts[i] = !node.settle(pipe, l, starting(`1`, lists[i]...)).Stale
				_, err := node.FollowUp(t.Context(), tenant)
				assert.NoError(t, err)
			})
		}
		waitAll(t, &all)
		require.NotEqual(t, counts[0], counts[1], "one counts")
		won := lists[0]
		if counts[1] {
			won = lists[1]
		}
		b.followUp()
		require.ElementsMatch(t, []string{string(won[0].Context), string(won[1].Context)},
			b.startedBy("pipe", id))
		for _, l := range b.leaseAll(pipe, 3) { // with the next stage
			_, err := b.Cancel(t.Context(), tenant, l.ID, "no more")
			require.NoError(t, err)
		}
	}
	b.checkTokens("pipe")
}

// Children of a fan-out inherit how many tasks in a row started one another, so that a loop over a
// fan-out ends, too.
func TestSpawnDepthOfChildren(t *testing.T) {
	b := setup(t)
	b.byHand()
	spec := spawning()
	spec.Stages[1].FanOut = &asyncflow.FanOut{Shards: 2}
	spec.Stages[1].Spawn = []string{"pipe"}
	pipe := b.put(spec.WithDefaults())
	b.submit(newTask(`0`))
	b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, spawned("pipe", `2`)))
	b.followUp()
	for _, l := range b.leaseAll(pipe, 2) {
		if l.Options.Spawned == nil {
			continue
		}
		b.settle(pipe, l, goodEnd)
		l = b.leaseAll(pipe, 1)[0]
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
			FannedOut: &asyncflow.FannedOut{FanOut: *spec.Stages[1].FanOut, Count: 2}})
	}
	b.followUp()
	for _, l := range b.leaseAll(pipe, 2) {
		require.NotNil(t, l.Options.Child)
		require.Equal(t, &asyncflow.Spawned{Depth: 1}, l.Options.Spawned)
	}
}

// A list of 10,000 tasks is made whole.
func TestSpawnMany(t *testing.T) {
	b := setup(t)
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	tasks := make([]asyncflow.SpawnedTask, asyncflow.MaxSpawn)
	for i := range tasks {
		tasks[i] = spawned("pipe", fmt.Sprintf(`"%s"`, strings.Repeat("x", 80)))
	}
	require.False(t, b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, tasks...)).Stale)
	b.followUp()
	eventually(t, "all are made", func() bool {
		made := b.task(id).Spawned
		return len(made) == 1 && made[0].Count == asyncflow.MaxSpawn
	})
}

// A roll keeps a task until all tasks are made that it started, however long that takes: nobody may
// have followed up for longer than the retention.
func TestSpawnKeepsItsRoll(t *testing.T) { eachSet(t, testSpawnKeepsItsRoll) }

func testSpawnKeepsItsRoll(t *testing.T, b *bundle) {
	b.byHand()
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, spawned("pipe", `2`)))
	other := b.submit(newTask(`3`))[0].ID
	b.rollAndClear()
	b.idle(true)
	require.False(t, b.drop(b.Clock.Now()))
	require.True(t, b.compact(1, b.Clock.Now()))
	_, err := b.Task(t.Context(), tenant, other)
	require.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err))
	b.followUp()
	require.Equal(t, []string{`2`}, b.startedBy("pipe", id))
	require.True(t, b.drop(b.Clock.Now()))
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.spawns`))
}

// Tasks that are still to be made count as live: otherwise a tenant whose tasks can't be made for
// a while could start any number of them, whatever its quota.
func TestSpawnCountsAsLive(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.SetChunks(2, 2, 2)
	pipe := b.put(spawning())
	b.submit(newTask(`0`))
	b.settle(pipe, b.leaseAll(pipe, 1)[0],
		starting(`1`, spawned("pipe", `2`), spawned("pipe", `3`), spawned("pipe", `4`)))
	for more := true; more; {
		live, err := b.CountLive(t.Context(), tenant)
		require.NoError(t, err)
		require.EqualValues(t, 4, live)
		more, err = b.FollowUp(t.Context(), tenant)
		require.NoError(t, err)
	}
	live, err := b.CountLive(t.Context(), tenant)
	require.NoError(t, err)
	require.EqualValues(t, 4, live)
}

// Children that are still to be made count as live, too: as many as may run at once.
func TestChildrenToBeMadeCountAsLive(t *testing.T) {
	for name, c := range map[string]struct {
		rule asyncflow.FanOut
		want int64
	}{
		"all":          {asyncflow.FanOut{Shards: 9}, 10},
		"max_parallel": {asyncflow.FanOut{Shards: 9, MaxParallel: 5}, 6},
		"votes": {asyncflow.FanOut{Shards: 9,
			Quorum: &asyncflow.Quorum{Votes: 3, MaxVotes: 9}}, 4},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.byHand()
			b.SetChunks(2, 2, 2)
			kind := twoStages()
			kind.Stages[0].FanOut = &c.rule
			if c.rule.Quorum != nil {
				kind.Stages[0].FanOut, kind.Stages[0].Quorum = nil, c.rule.Quorum
				kind.Stages[0].Mode = asyncflow.ModeClaim
			}
			b.put(kind)
			b.submit(newTask(`0`))
			l := b.leaseAll(b.known(), 1)[0]
			b.settle(b.known(), l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
				FannedOut: &asyncflow.FannedOut{FanOut: c.rule, Count: 9}})
			for more := true; more; {
				live, err := b.CountLive(t.Context(), tenant)
				require.NoError(t, err)
				require.Equal(t, c.want, live)
				more, err = b.FollowUp(t.Context(), tenant)
				require.NoError(t, err)
			}
			live, err := b.CountLive(t.Context(), tenant)
			require.NoError(t, err)
			require.Equal(t, c.want, live)
		})
	}
}

// A type that was deleted and made again under its name gets tasks that were started by its present
// stages, also on a node that doesn't know it yet.
func TestSpawnOfATypeThatWasMadeAgain(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	b.submit(newTask(`0`))
	b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, spawned("base", `2`)))
	b.exec(`UPDATE tenant_acme.task_types SET number = nextval('tenant_acme.type_numbers'),
		spec = replace(spec::text, '"only"', '"other"')::json WHERE name = 'base'`)
	b.exec(`UPDATE asyncflow.tenants SET version = version + 1 WHERE slug = 'acme'`)
	b.followUp()
	require.Equal(t, []int{0, 1}, []int{
		b.count(`SELECT count(*) FROM tenant_acme.ready_1 WHERE stage = 'only'`),
		b.count(`SELECT count(*) FROM tenant_acme.ready_1 WHERE stage = 'other'`)})
}

// After a jump back of the database, a node that makes tasks opens the next roll itself.
func TestSpawnInAnotherIncarnation(t *testing.T) {
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, spawned("pipe", `2`)))
	b.exec(`UPDATE tenant_acme.rolls SET history = 'another'`)
	far := open(t, b.url, "far")
	far.followUp()
	require.Equal(t, []string{`2`}, far.startedBy("pipe", id))
	b.checkTokens("pipe")
}

// Lists of different attempts are made in turn, and children of a fan-out beside them: a long list
// holds up neither.
func TestSpawnTakesTurns(t *testing.T) {
	b := setup(t)
	b.byHand()
	b.SetChunks(2, 4, 2)
	fanOut := asyncflow.FanOut{Shards: 20}
	parents := base()
	parents.Stages[0].FanOut = &fanOut
	wide := b.put(parents)
	parent := b.submit(asyncflow.NewTask{Type: "base", Context: json.RawMessage(`0`)})[0].ID
	b.settle(wide, b.leaseAll(wide, 1)[0], asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: fanOut, Count: 20}})
	pipe := b.put(spawning())
	tasks := make([]asyncflow.SpawnedTask, 20)
	for i := range tasks {
		tasks[i] = spawned("pipe", `1`)
	}
	first := b.submit(newTask(`0`))[0].ID
	second := b.submit(newTask(`0`))[0].ID
	for _, l := range b.leaseAll(pipe, 2) {
		b.settle(pipe, l, starting(`1`, tasks...))
	}
	for range 4 {
		_, err := b.FollowUp(t.Context(), tenant)
		require.NoError(t, err)
	}
	require.Len(t, b.startedBy("pipe", first), 4)
	require.Len(t, b.startedBy("pipe", second), 4)
	require.Equal(t, 12, b.task(parent).Children.Waiting, "not made yet")
}

// A page of the tasks that a task started is read in few queries, also if their ids are no run.
func TestSpawnPages(t *testing.T) {
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	const n = 250
	var existing []asyncflow.NewTask
	var tasks []asyncflow.SpawnedTask
	for i := range n {
		task := newTask(`0`)
		task.Delay = asyncflow.NewDuration(time.Hour)
		existing = append(existing, task)
		task.Options.Key = fmt.Sprint(i)
		existing = append(existing, task)
		tasks = append(tasks, spawned("pipe", `0`))
		tasks[i].Key = task.Options.Key
	}
	for _, one := range existing { // so that their numbers alternate
		require.NoError(t, b.submit(one)[0].Err)
	}
	id := b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0], starting(`1`, tasks...))
	b.followUp()
	filter := store.Filter{Type: "pipe", Parent: id, Limit: 1000}
	page, err := b.TaskPage(t.Context(), tenant, filter)
	require.NoError(t, err)
	require.Equal(t, 200, len(page.Tasks))
	filter.After = page.Next
	page, err = b.TaskPage(t.Context(), tenant, filter)
	require.NoError(t, err)
	require.Equal(t, 50, len(page.Tasks))
	require.Zero(t, page.Next)
	filter.After = 0
	b.sameBackwards(filter)
}

// One transaction makes few long tasks, of however many attempts.
func TestSpawnLongContexts(t *testing.T) {
	b := setup(t)
	b.byHand()
	pipe := b.put(spawning())
	const size = 700 << 10
	for range 4 {
		b.submit(newTask(`0`))
	}
	for _, l := range b.leaseAll(pipe, 4) {
		b.settle(pipe, l, starting(`1`, spawned("pipe", `"`+strings.Repeat("x", size)+`"`)))
	}
	const made = `SELECT count(*) FROM tenant_acme.spawns WHERE tasks IS NULL`
	for _, want := range []int{2, 4} {
		_, err := b.FollowUp(t.Context(), tenant)
		require.NoError(t, err)
		require.Equal(t, want, b.count(made))
	}
	require.Equal(t, 4, b.count(b.at(1, `SELECT count(*) FROM {task} WHERE length(context) > 9`)))
}

// A task that an attempt starts gets the lifetime that its worker gave it, from when it is due;
// otherwise that of its type.
func TestSpawnedLifetimes(t *testing.T) { eachSet(t, testSpawnedLifetimes) }

func testSpawnedLifetimes(t *testing.T, b *bundle) {
	b.byHand()
	other := base()
	other.EndBy = asyncflow.DeadlineAfter(time.Hour)
	b.put(other)
	pipe := b.put(spawning())
	id := b.submit(newTask(`0`))[0].ID
	own := spawned("base", `1`)
	own.StartBy = asyncflow.DeadlineAfter(time.Minute)
	own.EndBy = asyncflow.DeadlineAfter(48 * time.Hour)
	own.Delay = asyncflow.NewDuration(time.Hour)
	l := b.leaseAll(pipe, 1)[0]
	o := starting(`{}`, own, spawned("base", `2`))
	require.False(t, b.settle(pipe, l, o).Stale)
	b.followUp()
	require.False(t, b.settleAgain(pipe, b.ending(pipe, l, o)).Stale, "it is this settlement")
	all, err := b.Tasks(t.Context(), tenant, store.Filter{Type: "base", Parent: id, Limit: 10})
	require.NoError(t, err)
	require.Len(t, all, 2)
	now := b.Clock.Now()
	life := all[1].Options.Lifetime
	require.NotNil(t, life)
	require.WithinDuration(t, now.Add(time.Hour+time.Minute), life.StartBy, time.Minute)
	require.WithinDuration(t, now.Add(49*time.Hour), life.EndBy, time.Minute)
	require.WithinDuration(t, now.Add(time.Hour), all[0].Options.Lifetime.EndBy, time.Minute)
}
