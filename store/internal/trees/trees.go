// Package trees advances the tasks that depend on other tasks, or wait for their children:
// dependencies (edge_…), fan-outs (fan_out_…), votes, and the outbox: the work that committed
// transactions left. It also cancels and redrives tasks with their trees.
//
// It uses packages hot, records and catalog. Begin with FollowUp in outbox_start.go, then handle in
// outbox.go and what it calls: edge_follow.go, fan_out_follow.go, signal_follow.go, spawn_start.go
// and on_final.go, each with a type of its own around the same transaction.
//
// It exports, by the first word of its files:
//
//   - cancel: CancelAll, LockFanOuts, TooFast
//   - change: Change, ChangeOf, QueueChanges, BulkChange, ChangeAll, InsertKeyed
//   - edge: QueueGoneEdges, DependsOn, DependenciesOf, DependencyState, StillWaits,
//     InsertDependent, TypeOfDependency, OpenEdges, SweepOpenEdges, DryRunOpenEdges, Redriving
//   - expire: Expired, Expire, ExpireSoon
//   - fan: Family, FamilyOf, JoinedBy, ChildTypes, ChildrenOf, TreeOf, ParkHalted, Halts,
//     CancelStopped, ParentsOf, AnyOf, ParentArgs, WaitingFanOut, ChildResult, ChildResults,
//     ChildCount, ChildrenOfVisits, IsVote, OpenFanOuts, SweepFanOuts, DryRunFanOuts
//   - outbox: RestFollowUp, FollowUp, Beginning, FollowUpRows, FollowServer, BeginFollowUp,
//     FirstFollowUps, SweepWaits, DryRunFollowUps, SweepEdges, LookAtSignalWaits
//   - redrive: Redrive, RedriveAll
//   - signal: Visits, ReadVisits, SendSignal, ForgetSignals, DryRunForgetSignals
//   - spawn: BoundSpawn, GrowTree
//   - trees: Trees, New
//   - vote: QueueVotes, LateVote
package trees

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Trees moves on the tasks that depend on other tasks, or wait for their children.
type Trees struct {
	core        *catalog.Core
	hot         *hot.Path
	edgeCursors sweepCursors[edgeCursor]
	treeCursors sweepCursors[records.FanOutKey]
	chunks      chunks // of FollowUp
}

// New returns the trees of a database.
func New(core *catalog.Core, hot *hot.Path) *Trees {
	return &Trees{core: core, hot: hot, chunks: followUpChunks}
}

// inFollow runs do in a pinned transaction of FollowOr. do must be safe to repeat.
func (s *Trees) inFollow(ctx context.Context, tenant string, do func(pgx.Tx) error) error {
	return s.core.FollowOr(tenant, func(db postgres.TenantDB) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			if err := postgres.Pin(ctx, tx); err != nil {
				return err
			}
			return do(tx)
		})
	})
}

// sweepCursors are the cursors of the tenants in which one sweep of a kind doesn't reach the end.
type sweepCursors[C comparable] struct {
	mu  sync.Mutex
	all map[string]C
}

// get returns where the next sweep of a tenant goes on; the zero cursor is the beginning.
func (c *sweepCursors[C]) get(tenant string) C {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[tenant]
}

func (c *sweepCursors[C]) put(tenant string, at C) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var beginning C
	if at == beginning {
		delete(c.all, tenant)
		return
	}
	if c.all == nil {
		c.all = map[string]C{}
	}
	c.all[tenant] = at
}
