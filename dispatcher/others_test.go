package dispatcher_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher"
	"github.com/asyncflow/asyncflow/store"
)

// startBeside starts a node of some roles beside the row of another one, which does nothing.
func (b *bundle) startBeside(other, roles string, work sendFunc) *node {
	b.t.Helper()
	b.exec(`INSERT INTO asyncflow.nodes (id, roles, version, started_at, seen_at, knows)
		VALUES ('silent', '` + other + `', '', now(), now() + interval '1 hour', '{}')`)
	n := b.startAs(store.Config{Node: "a", Roles: roles, Notify: true},
		dispatcher.Config{Concurrency: 64}, work)
	require.Eventually(b.t, func() bool { return n.Dispatchers() == 2 }, patience,
		20*time.Millisecond)
	return n
}

// What a node leaves to nodes that only dispatch, and these don't take, it takes itself. Then it
// leaves nothing for a while.
func TestNodeTakesWhatOthersLeave(t *testing.T) {
	b := setup(t)
	var begun atomic.Int32
	all := make(chan struct{}) // closed at the begin of the 41st
	n := b.startBeside("dispatcher", "api,dispatcher",
		func(ctx context.Context, d asyncflow.Delivery) asyncflow.Outcome {
			if d.Lease.Stage != "first" {
				return done
			}
			switch begun.Add(1) {
			case 1:
				return done
			case 41:
				close(all)
			}
			select {
			case <-all:
			case <-ctx.Done():
			}
			return done
		})
	assert.Equal(t, []int{3, 8 + 4, 8 + 4}, []int{n.OwnPart(3), n.OwnPart(16), n.OwnPart(17)},
		"few tasks, and half of the further ones; the half task counts later")
	assert.Equal(t, 8+6, n.OwnPart(19))
	n.await(t, n.submit(t, 1), asyncflow.StatusSucceeded) // the line is known to be empty then
	assert.False(t, n.FoundLeft())
	n.await(t, n.submit(t, 40), asyncflow.StatusSucceeded)
	assert.True(t, n.FoundLeft(), "the other one is no help")
}

// A node begins all of its tasks itself if the others take requests, too, or if it takes none.
func TestNodeLeavesNothing(t *testing.T) {
	for name, roles := range map[string][2]string{
		"beside its like":   {"dispatcher,api", "api,dispatcher"},
		"without requests":  {"dispatcher", "dispatcher,governance"},
		"beside background": {"governance,dispatcher,api", "api,dispatcher"},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t)
			n := b.startBeside(roles[0], roles[1],
				func(context.Context, asyncflow.Delivery) asyncflow.Outcome { return done })
			assert.Equal(t, 100, n.OwnPart(100))
		})
	}
}

// What had to wait for something else than another node was not left by it.
func TestWaitingIsNotBeingLeft(t *testing.T) {
	t.Parallel()
	now := time.Now()
	left := asyncflow.Lease{Attempt: 1, DueAt: now.Add(-time.Second)}
	assert.True(t, dispatcher.WasLeft(left, now))
	for name, change := range map[string]func(l *asyncflow.Lease){
		"flow key":        func(l *asyncflow.Lease) { l.Options.FlowKey = "k" },
		"endpoint":        func(l *asyncflow.Lease) { l.Endpoint = "e" },
		"another attempt": func(l *asyncflow.Lease) { l.Attempt = 2 },
		"head start":      func(l *asyncflow.Lease) { l.DueAt = now.Add(-time.Millisecond) },
		"unknown":         func(l *asyncflow.Lease) { l.DueAt = time.Time{} },
	} {
		t.Run(name, func(t *testing.T) {
			l := left
			change(&l)
			assert.False(t, dispatcher.WasLeft(l, now))
		})
	}
}
