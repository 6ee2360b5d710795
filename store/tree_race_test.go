package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// A cancel of a tree of two levels, while 10,000 of its children are being made and begun: no child
// begins after the answer, on any node, and no more are made than one transaction does.
func TestCancelWhileChildrenAreMade(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.byHand()
	far := open(t, b.url, "far")
	far.byHand()
	b.put(base())
	pipe := b.put(spawning())
	root := b.submit(newTask(`0`))[0].ID
	b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, spawned("pipe", `1`))
	b.followUp()
	tasks := make([]asyncflow.SpawnedTask, asyncflow.MaxSpawn)
	for i := range tasks {
		tasks[i] = spawned("base", fmt.Sprintf(`"%d %s"`, i, strings.Repeat("x", 80)))
	}
	middle := b.leaseAll(pipe, 1)[0]
	b.startIn(middle, asyncflow.Join{OnChildFailure: allSettled}, tasks...)

	var answered atomic.Bool
	var begun, late atomic.Int64
	some := make(chan struct{}) // some children began
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var nodes sync.WaitGroup
	for _, node := range []*bundle{b, far} {
		nodes.Go(func() { // makes children
			for ctx.Err() == nil {
				_, _ = node.FollowUp(ctx, tenant) // the other node may lock the rows
			}
		})
		nodes.Go(func() { // begins children, and ends them
			base := node.kind("base")
			for ctx.Err() == nil {
				leases, _, err := node.Lease(ctx, base, 50)
				if err != nil {
					continue
				}
				after := answered.Load()
				ready, err := node.ParkHalted(ctx, base, leases)
				if err != nil {
					continue
				}
				if after {
					late.Add(int64(len(ready)))
				}
				for _, l := range ready {
					node.settle(base, l, goodEnd)
				}
				if n := int64(len(ready)); n > 0 && begun.Add(n) == n {
					close(some)
				}
			}
		})
	}
	select {
	case <-some:
	case <-time.After(patience):
		t.Fatal("no child begins")
	}
	_, err := b.Cancel(t.Context(), tenant, root, "no more")
	require.NoError(t, err)
	answered.Store(true)
	eventually(t, "the tree is over", func() bool {
		return b.count(`SELECT count(*) FROM tenant_acme.fan_outs WHERE NOT closed`) == 0
	})
	stop()
	waitAll(t, &nodes)
	// what was under way at the stop
	b.exec(`UPDATE tenant_acme.outbox SET due = now() - interval '1 s'`)
	b.followUp()
	require.Zero(t, late.Load(), "children that began after the answer")
	task := b.task(middle.ID)
	require.Equal(t, asyncflow.StatusCancelled, task.Status)
	require.Less(t, task.Children.Succeeded, asyncflow.MaxSpawn, "the cancel came too late")
	require.Equal(t, asyncflow.MaxSpawn, task.Children.Succeeded+task.Children.Cancelled)
	require.Zero(t, b.count(`SELECT count(*) FROM tenant_acme.outbox`))
	require.Zero(t, b.sweep())
	b.checkTokens("base")
	b.checkTokens("pipe")
	b.checkTallies("base")
}

// Two nodes end the children of a task and follow up on that at the same time, and one of them dies
// at any statement: the task goes on once, with all results.
func TestNodesRaceOverAJoin(t *testing.T) {
	longform.Costly(t)
	b := setup(t)
	b.byHand()
	b.put(base())
	pipe := b.put(spawning())
	second, line := mortal(t, b)
	died := 0
	for at := 1; at <= 24; at++ {
		id := b.submit(newTask(`0`))[0].ID
		var tasks []asyncflow.SpawnedTask
		for i := range 6 {
			tasks = append(tasks, spawned("base", fmt.Sprint(i)))
		}
		b.startIn(b.leaseAll(pipe, 1)[0], asyncflow.Join{}, tasks...)
		b.followUp()
		kind := b.kind("base")
		leases := b.leaseAll(kind, 6)
		line.arm(at, at%2 == 0, true)
		var nodes sync.WaitGroup
		for i, node := range []*bundle{b, second} {
			nodes.Go(func() {
				for _, l := range leases[3*i : 3*i+3] { // the node that dies can't do either
					end := b.ending(kind, l, output(string(l.Context)))
					_ = node.SettleAgain(t.Context(), kind, []*store.Ending{end})
					_, _ = node.FollowUp(t.Context(), tenant)
				}
			})
		}
		waitAll(t, &nodes)
		if line.mend() {
			died++
		}
		for _, l := range leases { // again, in place of the node that died
			end := b.ending(kind, l, output(string(l.Context)))
			eventually(t, "its locks are gone", func() bool {
				return b.SettleAgain(t.Context(), kind, []*store.Ending{end}) == nil
			})
			require.NoError(t, end.Settled.Err)
		}
		eventually(t, "it has joined", func() bool {
			b.exec(`UPDATE tenant_acme.outbox SET due = now()
				WHERE seq = ANY (ARRAY(SELECT seq FROM tenant_acme.outbox FOR UPDATE SKIP LOCKED))`)
			b.followUp()
			return b.task(id).Stage == pipe.Stages[1].Name
		})
		attempts, err := b.Attempts(t.Context(), tenant, id)
		require.NoError(t, err)
		joined := 0
		for _, a := range attempts {
			if a.Outcome == asyncflow.OutcomeJoined {
				joined++
			}
		}
		assert.Equal(t, 1, joined, "died at statement %d", at)
		l := b.leaseAll(pipe, 1)[0]
		require.Equal(t, `{"count":6,"succeeded":6,"failed":0,"cancelled":0,`+
			`"results":[0,1,2,3,4,5]}`, string(l.Context), "died at statement %d", at)
		b.settle(pipe, l, goodEnd)
	}
	require.Greater(t, died, 6)
	require.Zero(t, b.sweep())
	b.checkTokens("base")
	b.checkTokens("pipe")
	b.checkTallies("pipe")
}
