package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// A submit that replaces a task is a submit: the task gets the lifetime that it gives, and
// durations from before count anew. So the context that was acknowledged last is not lost with a
// lifetime that was over, or about to be.
func TestReplaceOfALifetime(t *testing.T) { eachSet(t, replaceOfALifetime) }

func replaceOfALifetime(t *testing.T, b *bundle) {
	pipe := b.put(patient())
	submit := func(context string, start, end asyncflow.Deadline) asyncflow.TaskID {
		task := replacing("k", context, 0, 0)
		task.StartBy, task.EndBy = start, end
		return b.submit(task)[0].ID
	}
	none := asyncflow.Deadline{}
	lasts := func(id asyncflow.TaskID, start, end time.Duration) {
		t.Helper()
		b.expireTasks()
		task := b.task(id)
		require.Equal(t, asyncflow.StatusPending, task.Status)
		life := task.Options.Lifetime
		require.WithinDuration(t, b.Clock.Now().Add(start), life.StartBy, time.Minute)
		require.WithinDuration(t, b.Clock.Now().Add(end), life.EndBy, time.Minute)
		require.Equal(t, 1, b.lifetimes())
	}
	id := submit(`1`, asyncflow.DeadlineAfter(time.Hour), asyncflow.DeadlineAfter(2*time.Hour))
	b.lapse(id, "start_by", "end_by") // no job looked
	require.Equal(t, id, submit(`2`, none, none))
	lasts(id, time.Hour, 2*time.Hour)
	require.Equal(t, id, submit(`3`, asyncflow.DeadlineAfter(3*time.Hour), none))
	lasts(id, 3*time.Hour, 2*time.Hour)
	require.Equal(t, id, submit(`4`, none, asyncflow.DeadlineAt(b.Clock.Now().Add(time.Hour))))
	lasts(id, 3*time.Hour, time.Hour)

	b.lapse(id, "end_by")
	next := submit(`5`, none, none)
	require.NotEqual(t, id, next, "a time doesn't count anew")
	b.expireTasks()
	b.expired(id, "ended")
	leases := b.lease(pipe, 10)
	require.Len(t, leases, 1)
	assert.Equal(t, []any{next, `5`}, []any{leases[0].ID, string(leases[0].Context)})
	b.checkTokens("pipe")
}

// A task isn't postponed beyond its lifetime: then another one gets the key.
func TestReplaceBeyondALifetime(t *testing.T) {
	b := setup(t)
	b.put(patient())
	task := replacing("k", `1`, time.Minute, 0)
	task.EndBy = asyncflow.DeadlineAt(b.Clock.Now().Add(time.Hour))
	first := b.submit(task)[0].ID
	place := b.task(first).OrderTime
	next := b.submit(replacing("k", `2`, 2*time.Hour, 0))[0]
	require.NotEqual(t, first, next.ID)
	require.False(t, next.Existing)
	assert.Equal(t, place, b.task(first).OrderTime, "the old one stays as it is")
	assert.Nil(t, b.task(next.ID).Options.Lifetime)
	last := b.submit(replacing("k", `3`, time.Hour, 0))[0]
	assert.Equal(t, []any{next.ID, true}, []any{last.ID, last.Replaced})
}

// The rules of who may claim a task belong to its context: a submit that gives others replaces
// them, so that the author of the last version can't judge it. One that gives none keeps them.
func TestReplaceOfClaimRules(t *testing.T) {
	b := setup(t)
	b.claimType(nil)
	submit := func(context string, rules *asyncflow.ClaimRules) store.Submitted {
		task := replacing("k", context, 0, 0)
		task.Options.Claim = rules
		return b.submit(task)[0]
	}
	notBob := &asyncflow.ClaimRules{Exclude: []string{"bob"}}
	first := submit(`"of anna"`, notAnna)
	require.Empty(t, b.claimsOf("first", "anna", 1))
	second := submit(`"of bob"`, notBob)
	require.Equal(t, []any{first.ID, true}, []any{second.ID, second.Replaced})
	require.Equal(t, notBob, b.task(first.ID).Options.Claim)
	submit(`"of nobody"`, nil)
	require.Empty(t, b.claimsOf("first", "bob", 1))
	l := b.claimSoon("first", "anna")
	assert.Equal(t, []any{first.ID, `"of nobody"`}, []any{l.ID, string(l.Context)})
	b.checkTokens("pipe")
}
