package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/store"
)

// act is one way to move a task on. It reports whether it took the task's token row or, for a final
// task, whether it wrote the journal row of the redrive.
type act func(b *bundle, pipe *store.Type, id asyncflow.TaskID, l asyncflow.Lease) bool

var (
	actLease act = func(b *bundle, pipe *store.Type, id asyncflow.TaskID, _ asyncflow.Lease) bool {
		return slices.ContainsFunc(b.lease(pipe, 10), func(l asyncflow.Lease) bool {
			return l.ID == id
		})
	}
	actSettle act = func(b *bundle, pipe *store.Type, _ asyncflow.TaskID, l asyncflow.Lease) bool {
		r := b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		require.NoError(b.t, r.Err)
		return !r.Stale
	}
	actRescue act = func(b *bundle, pipe *store.Type, _ asyncflow.TaskID, _ asyncflow.Lease) bool {
		n, err := b.Rescue(b.t.Context(), pipe)
		require.NoError(b.t, err)
		return n == 1
	}
	actLate act = func(b *bundle, pipe *store.Type, id asyncflow.TaskID, l asyncflow.Lease) bool {
		_, taken, err := b.SettleLate(b.t.Context(), pipe, id, l.Seq,
			asyncflow.Outcome{Kind: asyncflow.OutcomeDone})
		require.NoError(b.t, err)
		return taken
	}
	actPromote act = func(b *bundle, pipe *store.Type, _ asyncflow.TaskID, _ asyncflow.Lease) bool {
		n, err := b.Promote(b.t.Context(), pipe, []string{"first"})
		require.NoError(b.t, err)
		return n == 1
	}
	actCancel act = func(b *bundle, _ *store.Type, id asyncflow.TaskID, _ asyncflow.Lease) bool {
		_, err := b.Cancel(b.t.Context(), tenant, id, "raced")
		return b.won(err)
	}
	actRedrive act = func(b *bundle, _ *store.Type, id asyncflow.TaskID, _ asyncflow.Lease) bool {
		_, err := b.Redrive(b.t.Context(), tenant, id, store.Redrive{})
		return b.won(err)
	}
	actChange act = func(b *bundle, _ *store.Type, id asyncflow.TaskID, _ asyncflow.Lease) bool {
		_, err := b.Change(b.t.Context(), tenant, id,
			asyncflow.Patch{RunAt: b.Clock.Now().Add(30 * time.Minute)})
		return b.won(err)
	}
)

// won reports success, or false for a conflict; any other error fails the test.
func (b *bundle) won(err error) bool {
	if err != nil {
		require.Equal(b.t, asyncflow.CodeConflict, asyncflow.CodeOf(err), "%v", err)
	}
	return err == nil
}

// places are where a task may stand when two nodes want to move it on: each brings a new
// task there and returns it with its last lease.
var places = map[string]func(b *bundle, pipe *store.Type) (asyncflow.TaskID, asyncflow.Lease){
	"ready": func(b *bundle, _ *store.Type) (asyncflow.TaskID, asyncflow.Lease) {
		return b.submit(newTask(`1`))[0].ID, asyncflow.Lease{}
	},
	"wait": func(b *bundle, pipe *store.Type) (asyncflow.TaskID, asyncflow.Lease) {
		id := b.submit(newTask(`1`))[0].ID
		l := b.leaseOne(pipe)
		b.conclude(l, asyncflow.Outcome{Kind: asyncflow.OutcomeReleased},
			asyncflow.ParkFor(l, asyncflow.WaitEndpoint))
		return id, l
	},
	"lease": func(b *bundle, pipe *store.Type) (asyncflow.TaskID, asyncflow.Lease) {
		id := b.submit(newTask(`1`))[0].ID
		return id, b.leaseOne(pipe)
	},
	"lease over": leaseOver,
	"lost": func(b *bundle, pipe *store.Type) (asyncflow.TaskID, asyncflow.Lease) {
		id, l := leaseOver(b, pipe)
		require.True(b.t, actRescue(b, pipe, id, l))
		return id, l
	},
	"failed": func(b *bundle, pipe *store.Type) (asyncflow.TaskID, asyncflow.Lease) {
		id := b.submit(newTask(`1`))[0].ID
		l := b.leaseOne(pipe)
		b.settle(pipe, l, asyncflow.Outcome{Kind: asyncflow.OutcomeRejected})
		return id, l
	},
}

// leaseOne leases the one task that is due, or will be once the node's notion of the
// database's time says so.
func (b *bundle) leaseOne(pipe *store.Type) asyncflow.Lease {
	b.t.Helper()
	var leases []asyncflow.Lease
	require.Eventually(b.t, func() bool {
		leases = b.lease(pipe, 1)
		return len(leases) == 1
	}, patience, 20*time.Millisecond)
	return leases[0]
}

func leaseOver(b *bundle, pipe *store.Type) (asyncflow.TaskID, asyncflow.Lease) {
	id := b.submit(newTask(`1`))[0].ID
	l := b.leaseOne(pipe)
	_, err := b.db.Exec(b.t.Context(),
		`UPDATE tenant_acme.lease SET until = now() - interval '1 s'`)
	require.NoError(b.t, err)
	return id, l
}

// Two nodes that want to move on the same task at the same moment: whichever comes first, there is
// one token row of the task (none if it is final) and one journal row for each seq, and of two that
// exclude each other one wins.
func TestTwoNodesRace(t *testing.T) {
	longform.Costly(t)
	eachSet(t, twoNodesRace)
}

func twoNodesRace(t *testing.T, one *bundle) {
	two := open(t, one.url, "node-2")
	pipe := one.put(twoStages())
	require.NoError(t, two.Catalog.Refresh(context.Background()))
	for _, c := range []struct {
		place    string
		a, b     act
		mayBoth  bool // one may come after the other and find what it left
		atLeast1 bool
		name     string
	}{
		{"ready", actLease, actLease, false, true, "lease, lease"},
		// a leased task can be cancelled too
		{"ready", actLease, actCancel, true, true, "lease, cancel"},
		{"ready", actLease, actChange, false, true, "lease, change"},
		{"ready", actCancel, actChange, true, true, "cancel, change"},
		{"ready", actChange, actChange, true, true, "change, change"},
		// the same thing again is well
		{"ready", actCancel, actCancel, true, true, "cancel, cancel"},
		{"wait", actPromote, actPromote, false, false, "promote, promote"},
		{"wait", actPromote, actCancel, true, true, "promote, cancel"},
		{"wait", actPromote, actChange, true, true, "promote, change"},
		// the same outcome again is well
		{"lease", actSettle, actSettle, true, true, "settle, settle"},
		{"lease", actSettle, actCancel, true, true, "settle, cancel"},
		{"lease over", actSettle, actRescue, false, true, "settle, rescue"},
		{"lease over", actRescue, actRescue, false, false, "rescue, rescue"},
		{"lease over", actRescue, actCancel, true, true, "rescue, cancel"},
		{"lost", actLate, actLease, true, true, "late, lease"}, // the next stage may be leased
		{"lost", actLate, actLate, true, true, "late, late"},   // the same report again is well
		{"lost", actLate, actCancel, true, true, "late, cancel"},
		{"lost", actLate, actChange, true, true, "late, change"},
		{"failed", actRedrive, actRedrive, false, true, "redrive, redrive"},
		{"failed", actRedrive, actCancel, true, true, "redrive, cancel"},
		{"failed", actRedrive, actLease, true, true, "redrive, lease"},
	} {
		for range longform.Size(4, 8) {
			id, l := places[c.place](one, pipe)
			start, won := make(chan struct{}), make(chan bool, 2)
			for b, do := range map[*bundle]act{one: c.a, two: c.b} {
				go func() {
					did := false
					defer func() { won <- did }() // whatever happens
					<-start
					did = do(b, pipe, id, l)
				}()
			}
			close(start)
			a, b := <-won, <-won
			if c.atLeast1 {
				require.True(t, a || b, c.name)
			}
			if !c.mayBoth {
				require.False(t, a && b, c.name)
			}
			one.checkTokens("pipe")
			one.checkJournal(id)
			one.clear()
		}
	}
}

// checkJournal asserts that the seqs of a task's journal are without gaps.
func (b *bundle) checkJournal(id asyncflow.TaskID) {
	b.t.Helper()
	attempts, err := b.Attempts(b.t.Context(), tenant, id)
	require.NoError(b.t, err)
	for i, a := range attempts {
		require.Equal(b.t, i+1, a.Seq, "%+v", attempts)
	}
}

// clear deletes all tasks.
func (b *bundle) clear() {
	b.t.Helper()
	b.exec(`
		DO $$ BEGIN
		  EXECUTE (SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ') FROM pg_class
		    WHERE relkind = 'r' AND relnamespace = 'tenant_acme'::regnamespace
		      AND relname ~
		        '^(task|journal|ready|search)_.*[0-9]$|^(lease|wait|tallies|expired_tallies)$');
		END $$`)
}
