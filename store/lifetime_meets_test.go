package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A task that began in time goes on although its row in lifetimes still says otherwise, as a node
// leaves it that knows no lifetimes. One that was only given back is not begun.
func TestExpireKeepsWhatHasBegun(t *testing.T) { eachSet(t, testExpireKeepsWhatHasBegun) }

func testExpireKeepsWhatHasBegun(t *testing.T, b *bundle) {
	pipe := b.put(patient())
	all := b.submit(within(time.Hour, 0), within(time.Hour, 0))
	begun, unsent := all[0].ID, all[1].ID
	for _, l := range b.lease(pipe, 2) {
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeReleased}
		if l.ID == begun {
			o = asyncflow.Outcome{Kind: asyncflow.OutcomeFailed, Error: "x"}
		}
		b.settle(pipe, l, o)
	}
	b.exec(b.at(0, `INSERT INTO {lifetimes} VALUES ({number}, $1, now(), 0)`), begun.Number)
	b.lapse(begun, "start_by")
	b.lapse(unsent, "start_by")
	b.expireTasks()
	assert.Equal(t, asyncflow.StatusPending, b.task(begun).Status)
	b.expired(unsent, "begun")
	assert.Zero(t, b.lifetimes())
}

// An attempt that runs at its start_by goes on: only end_by ends it.
func TestExpireLeavesRunningAttempts(t *testing.T) { eachSet(t, testExpireLeavesRunning) }

func testExpireLeavesRunning(t *testing.T, b *bundle) {
	pipe := b.put(patient())
	id := b.submit(within(time.Hour, 0))[0].ID
	l := b.lease(pipe, 1)[0]
	b.lapse(id, "start_by")
	b.expireTasks()
	require.Equal(t, asyncflow.StatusRunning, b.task(id).Status)
	require.False(t, b.settle(pipe, l, doneWith(`2`)).Stale)
	require.Equal(t, asyncflow.StatusPending, b.task(id).Status)
}

// A dependent hears of an expired task as of a failed one, and expires itself while it waits.
func TestExpireDependents(t *testing.T) {
	b := setupEdges(t)
	awaited := newBase("")
	awaited.EndBy = asyncflow.DeadlineAfter(time.Hour)
	other := b.submit(awaited)[0].ID
	waits := b.submit(dependent(byID(other)))[0].ID
	late := dependent(byKey("never"))
	late.StartBy = asyncflow.DeadlineAfter(time.Hour)
	both := b.submit(late)[0].ID
	b.followUp()
	b.comesTo(waits, asyncflow.StatusWaiting)
	b.comesTo(both, asyncflow.StatusWaiting)

	kind := b.kind("base")
	b.exec(kind.SQL(kind.End, `UPDATE {task} SET options = jsonb_set(options::jsonb,
		'{lifetime,end_by}', '"2001-01-01T00:00:00Z"')::json WHERE type = $1 AND id = $2`),
		kind.Number(), other.Number)
	b.exec(b.at(0, `UPDATE {lifetimes} SET expires_at = '2001-01-01' WHERE id = $1`), other.Number)
	_, err := b.ExpireTasks(t.Context(), kind)
	require.NoError(t, err)
	b.followUp()
	task := b.comesTo(waits, asyncflow.StatusFailed)
	require.EqualValues(t, asyncflow.StatusFailed, task.Dependencies[0].Status)

	b.lapse(both, "start_by")
	b.expireTasks()
	b.expired(both, "begun")
	b.checkTokens("pipe")
}

// An ordered flow key goes on after a task that expired, or is blocked, as its type says.
func TestExpireOrderedFlow(t *testing.T) {
	t.Parallel()
	for name, flow := range map[string]asyncflow.Flow{"goes on": skips, "block": blocks} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			b.byHand()
			spec := patient()
			spec.Flow = &flow
			b.put(spec)
			first := keyed("a", `1`)
			first.EndBy = asyncflow.DeadlineAfter(time.Hour)
			id := b.submit(first)[0].ID
			next := b.submit(keyed("a", `2`))[0].ID
			require.Len(t, b.admitAll(), 1)
			b.lapse(id, "end_by")
			b.expireTasks()
			b.expired(id, "ended")
			b.followUp()
			if flow.OnFailure == asyncflow.FlowBlock {
				b.keyBlocked(next)
			} else {
				require.Equal(t, next, b.soon()[0].ID)
			}
			b.checkTokens("pipe")
		})
	}
}

// A task that waits for tasks which it started ends at its end_by, and so do they. One of them that
// expires counts as failed for it.
func TestExpireJoin(t *testing.T) { eachSet(t, testExpireJoin) }

func testExpireJoin(t *testing.T, b *bundle) {
	spec := spawning()
	spec.EndBy = asyncflow.DeadlineAfter(time.Hour)
	b.byHand()
	b.put(base())
	pipe := b.put(spec)
	id := b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0], joining(asyncflow.Join{}, spawned("base", `1`),
		spawned("pipe", `2`)))
	b.followUp()
	started := b.leaseAll(pipe, 1)[0].ID
	require.Equal(t, 2, b.lifetimes(), "the started task has the lifetime of its own type")
	b.lapse(started, "end_by")
	b.expireTasks()
	b.followUp()
	b.expired(started, "ended")
	b.comesTo(id, asyncflow.StatusFailed)
	last, _ := b.lastOutcome(id)
	require.NotEqual(t, asyncflow.OutcomeExpired, last, "a task that it waited for has failed")

	second := b.submit(newTask(`0`))[0].ID
	b.settle(pipe, b.leaseAll(pipe, 1)[0], joining(asyncflow.Join{}, spawned("base", `3`)))
	b.followUp()
	b.lapse(second, "end_by")
	b.expireTasks()
	b.expired(second, "ended")
	b.followUp()
	eventually(t, "the started tasks are cancelled", func() bool {
		b.followUp()
		return len(b.leaseAny("base")) == 0
	})
	b.checkTokens("pipe")
}

// leaseAny leases what is due of a type.
func (b *bundle) leaseAny(name string) []asyncflow.Lease {
	b.t.Helper()
	leases, _, err := b.Lease(b.t.Context(), b.kind(name), 100)
	require.NoError(b.t, err)
	return leases
}

// The end of an expired task is told once, whoever ends it: the job or a late report.
func TestExpireIsToldOnce(t *testing.T) { eachSet(t, testExpireIsToldOnce) }

func testExpireIsToldOnce(t *testing.T, b *bundle) {
	b.byHand()
	b.told()
	pipe := b.put(single())
	task := within(0, time.Hour)
	task.Options.OnFinal = shop()
	id := b.submit(task)[0].ID
	l := b.leaseAll(pipe, 1)[0]
	b.lapse(id, "end_by")
	b.expireTasks()
	b.followUp()
	require.True(t, b.settle(pipe, l, doneWith(`2`)).Stale)
	b.expireTasks()
	b.followUp()
	got := b.events()
	require.Len(t, got, 1)
	assert.Equal(t, "task.failed", got[0].Type)
	assert.Equal(t, asyncflow.StatusFailed, got[0].Data.Status)
	assert.Contains(t, got[0].Data.Error, "expired: ")
}

// A task ends at its end_by while its votes are being cast: claims of votes don't stand any more.
func TestExpireVotes(t *testing.T) { eachSet(t, testExpireVotes) }

func testExpireVotes(t *testing.T, b *bundle) {
	b.byHand()
	spec := patient()
	spec.Stages = spec.Stages[:1]
	spec.Stages[0].Mode, spec.Stages[0].Quorum = asyncflow.ModeClaim, &voteQuorum
	pipe := b.put(spec)
	id := b.submit(within(0, time.Hour))[0].ID
	l := b.leaseAll(pipe, 1)[0]
	b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeFannedOut,
		FannedOut: &asyncflow.FannedOut{FanOut: *pipe.FansOut(l),
			Count: voteQuorum.MaxVotes + voteQuorum.MaxErrors}})
	b.followUp()
	claim := func(who string) []asyncflow.Lease {
		ask := &store.ClaimAsk{Claimer: who, N: 1}
		_, err := b.LeaseForClaims(t.Context(), b.known(), "first", []*store.ClaimAsk{ask}, 1,
			1<<20)
		require.NoError(t, err)
		return ask.Leases
	}
	var votes []asyncflow.Lease
	eventually(t, "a vote", func() bool {
		b.followUp()
		votes = claim("anna")
		return len(votes) == 1
	})
	b.lapse(id, "end_by")
	b.expireTasks()
	b.expired(id, "ended")
	b.followUp()
	b.comesTo(votes[0].ID, asyncflow.StatusCancelled)
	require.True(t, b.settle(pipe, votes[0], doneWith(`1`)).Stale)
	require.Empty(t, claim("ben"))
	b.checkTokens("pipe")
}

// A claim that is held when its task expires doesn't stand; nobody else gets the task.
func TestExpireClaims(t *testing.T) { eachSet(t, testExpireClaims) }

func testExpireClaims(t *testing.T, b *bundle) {
	spec := patient()
	spec.Stages[0].Mode = asyncflow.ModeClaim
	pipe := b.put(spec)
	id := b.submit(within(0, time.Hour))[0].ID
	ask := &store.ClaimAsk{Claimer: "anna", N: 1}
	eventually(t, "a claim", func() bool {
		_, err := b.LeaseForClaims(t.Context(), pipe, "first", []*store.ClaimAsk{ask}, 1, 1<<20)
		require.NoError(t, err)
		return len(ask.Leases) == 1
	})
	b.lapse(id, "end_by")
	b.expireTasks()
	b.expired(id, "ended")
	r := b.settle(pipe, ask.Leases[0], doneWith(`1`))
	assert.Equal(t, store.Settled{Stale: true, Written: asyncflow.OutcomeExpired}, r)
	b.checkTokens("pipe")
}

// A task that waits for a signal ends at its end_by, and takes no signal after that.
func TestExpireSignalWait(t *testing.T) {
	b := setup(t)
	spec := patient()
	spec.Stages = append(spec.Stages[:1], waiting("wait", "approved"))
	b.put(spec)
	id := b.submit(within(0, time.Hour))[0].ID
	b.settle(b.known(), b.lease(b.known(), 1)[0], to("wait", `1`))
	b.await()
	require.Equal(t, asyncflow.StatusWaiting, b.task(id).Status)
	b.lapse(id, "end_by")
	b.expireTasks()
	b.expired(id, "ended")
	_, err := b.SendSignal(t.Context(), tenant, asyncflow.Signal{Name: "approved",
		Task: id.String()})
	require.Equal(t, asyncflow.CodeTaskOver, asyncflow.CodeOf(err), err)
	b.checkTokens("pipe")
}

// The children of a redriven parent begin anew with its new lifetime.
func TestExpireRedriveOfAParent(t *testing.T) {
	b := setupFanOut(t)
	spec := b.known().TaskType
	spec.EndBy = asyncflow.DeadlineAfter(time.Hour)
	b.put(spec)
	id := b.fanOut(asyncflow.FanOut{Items: "/items"})
	require.Len(t, b.leaseAll(b.known(), 2), 2)
	b.lapse(id, "end_by")
	b.expireTasks()
	b.expired(id, "ended")
	b.followUp()
	_, err := b.Redrive(t.Context(), tenant, id, store.Redrive{
		EndBy: asyncflow.DeadlineAfter(2 * time.Hour)})
	require.NoError(t, err)
	b.followUp()
	b.endChildren(goodEnd, goodEnd)
	b.followUp()
	l := b.leaseAll(b.known(), 1)[0]
	require.Equal(t, id, l.ID)
	require.Equal(t, "second", l.Stage)
	require.WithinDuration(t, b.Clock.Now().Add(2*time.Hour), l.Options.Lifetime.EndBy, time.Minute)
	b.checkTokens("pipe")
}

// No child begins after the end_by of its parent, or of a task above that, although the job is
// still to end the parent: neither by a dispatcher's lease nor by a claim.
func TestNoChildBeginsAfterTheEndOfItsParent(t *testing.T) {
	t.Parallel()
	for _, mode := range []asyncflow.Mode{asyncflow.ModePush, asyncflow.ModeClaim} {
		t.Run(string(mode), func(t *testing.T) {
			b := setup(t)
			b.byHand()
			spec := patient()
			spec.Stages[0].FanOut = &asyncflow.FanOut{Items: "/items"}
			spec.Stages[0].Mode = mode
			b.put(spec.WithDefaults())
			task := newTask(`{"items":[1,2]}`)
			task.EndBy = asyncflow.DeadlineAfter(time.Hour)
			id := b.submit(task)[0].ID
			b.settle(b.known(), b.leaseAll(b.known(), 1)[0], asyncflow.Outcome{
				Kind: asyncflow.OutcomeFannedOut, FannedOut: &asyncflow.FannedOut{
					FanOut: asyncflow.FanOut{Items: "/items"}, Count: 2}})
			b.followUp()
			b.lapse(id, "end_by")
			if mode == asyncflow.ModePush {
				children := b.leaseAll(b.known(), 2)
				left, err := b.ParkHalted(t.Context(), b.known(), children)
				require.NoError(t, err)
				require.Empty(t, left)
			} else {
				ask := &store.ClaimAsk{Claimer: "anna", N: 2}
				_, err := b.LeaseForClaims(t.Context(), b.known(), "first",
					[]*store.ClaimAsk{ask}, 2, 1<<20)
				require.NoError(t, err)
				require.Empty(t, ask.Leases)
			}
			b.followUp()
			b.expireTasks()
			b.expired(id, "ended")
			b.checkTokens("pipe")
		})
	}
}

// A put that gives a stage a start_by holds for tasks that are in line there: they expire, and the
// tasks behind them get their turn.
func TestExpireByAnotherType(t *testing.T) { eachSet(t, testExpireByAnotherType) }

func testExpireByAnotherType(t *testing.T, b *bundle) {
	b.byHand()
	spec := patient()
	spec.Stages[0].Mode = asyncflow.ModeClaim
	b.put(spec)
	ends := b.submit(newTask("1"))[0].ID
	row := b.submit(within(0, time.Hour))[0].ID // there is a row about its end
	b.exec(b.at(0, `UPDATE {wait} SET order_time = order_time - interval '1 hour',
		since = since - interval '1 hour' WHERE type = {number}`))
	spec.Stages[0].StartBy = asyncflow.NewDuration(time.Minute)
	b.put(spec)
	next := b.submit(newTask("3"))[0].ID
	var got []asyncflow.Lease
	eventually(t, "the task behind them is handed out", func() bool {
		ask := &store.ClaimAsk{Claimer: "anna", N: 1}
		_, err := b.LeaseForClaims(t.Context(), b.known(), "first", []*store.ClaimAsk{ask}, 1,
			1<<20)
		require.NoError(t, err)
		got = ask.Leases
		return len(got) == 1
	})
	require.Equal(t, next, got[0].ID)
	b.expired(ends, "begun")
	b.expired(row, "begun")
	b.checkTokens("pipe")
}

// A put that takes a stage's start_by away holds for tasks that wait there, too, and so does a
// longer one.
func TestExpireByALaterType(t *testing.T) { eachSet(t, testExpireByALaterType) }

func testExpireByALaterType(t *testing.T, b *bundle) {
	spec := patient()
	spec.Stages[0].StartBy = asyncflow.NewDuration(time.Minute)
	b.put(spec)
	id := b.submit(newTask("1"))[0].ID
	overdue := func() { // as if the job came when the row says
		b.exec(b.at(0, `UPDATE {lifetimes} SET expires_at = $1 WHERE type = {number}`),
			b.Clock.Now().Add(-time.Second))
		b.expireTasks()
	}
	spec.Stages[0].StartBy = asyncflow.NewDuration(time.Hour)
	b.put(spec)
	overdue()
	require.Equal(t, asyncflow.StatusPending, b.task(id).Status)
	require.Equal(t, 1, b.lifetimes())
	spec.Stages[0].StartBy = asyncflow.Duration{}
	b.put(spec)
	overdue()
	require.Equal(t, asyncflow.StatusPending, b.task(id).Status)
	require.Zero(t, b.lifetimes())
	b.checkTokens("pipe")
}
