package dispatcher_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
)

// startWithOneSlot starts a node with one slot. It returns a channel with its deliveries, and one
// for their outcomes.
func (b *bundle) startWithOneSlot() (*node, <-chan asyncflow.Delivery, chan<- asyncflow.Outcome) {
	b.t.Helper()
	sent, answers := make(chan asyncflow.Delivery), make(chan asyncflow.Outcome)
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		sent <- d
		return <-answers
	}
	return b.start("a", dispatcher.Config{Concurrency: 1}, send), sent, answers
}

// handedOn returns how many leased tasks began their stage when the previous one ended.
func (b *bundle) handedOn() int {
	b.t.Helper()
	return b.count(`tenant_acme.lease l
		JOIN tenant_acme.journal_1 j ON j.id = l.id AND j.xmin::text = l.xmin::text`)
}

// A task that goes on with its next stage keeps its slot, even the only one: the transaction that
// ends the lease of a stage writes that of the next.
func TestHandoffToTheNextStage(t *testing.T) {
	b := setup(t)
	n, sent, answers := b.startWithOneSlot()
	task := newTasks(1)
	task[0].Options.Priority = asyncflow.Priority{0, 5}
	for _, output := range []string{"", `{"made":1}`} {
		ended, want := done, string(task[0].Context)
		if output != "" {
			ended.Output, want = json.RawMessage(output), output
		}
		require.Eventually(t, func() bool { // else there was just a look
			results := n.Submit(t.Context(), tenant, task)
			require.NoError(t, results[0].Err)
			<-sent
			answers <- ended
			second := (<-sent).Lease
			handed := b.handedOn()
			answers <- done
			n.await(t, results, asyncflow.StatusSucceeded)
			assert.Equal(t, []any{results[0].ID, "second", 1, 2, want, task[0].Options},
				[]any{second.ID, second.Stage, second.Attempt, second.Seq, string(second.Context),
					second.Options})
			return handed == 1
		}, patience, 20*time.Millisecond)
	}
	n.isEmpty(t)
}

// Tasks in line come before a task that enters its next stage.
func TestHandoffToTheNextStageKeepsTheOrder(t *testing.T) {
	b := setup(t)
	n, sent, answers := b.startWithOneSlot()
	results := n.submit(t, 3)
	for _, stage := range []string{"first", "second"} {
		for _, r := range results {
			l := (<-sent).Lease
			assert.Equal(t, []any{r.ID, stage}, []any{l.ID, l.Stage})
			answers <- done
		}
	}
	n.await(t, results, asyncflow.StatusSucceeded)
}

// If its type gets limits during the delivery, a task goes in line for its next stage: only a lease
// applies the limits.
func TestLimitsOfTheNextStage(t *testing.T) {
	b := setup(t)
	sent, answers := make(chan asyncflow.Delivery, 2), make(chan asyncflow.Outcome, 2)
	send := func(_ context.Context, d asyncflow.Delivery) asyncflow.Outcome {
		sent <- d
		select {
		case o := <-answers:
			return o
		case <-t.Context().Done():
			return done
		}
	}
	n := b.start("a", dispatcher.Config{}, send)
	results := n.submit(t, 1)
	<-sent
	b.exec(`UPDATE tenant_acme.endpoints SET max_in_flight = 3 WHERE stage = 'second'`)
	require.Eventually(t, func() bool {
		pipe, err := n.Catalog.Type(tenant, "pipe")
		return err == nil && pipe.Endpoints("second")[0].Limits.MaxInFlight == 3
	}, patience, 20*time.Millisecond)
	require.Eventually(t, func() bool { return n.IsIdle(pipeKey) }, patience, 20*time.Millisecond,
		"the change has had it looked at")
	answers <- done
	require.Equal(t, "second", (<-sent).Lease.Stage)
	require.Zero(t, b.handedOn())
	answers <- done
	n.await(t, results, asyncflow.StatusSucceeded)
}
