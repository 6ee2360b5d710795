package store

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// The methods of a Store stand in rooms, which a Store embeds: so a caller writes store.Cancel, and
// a reader looks into the room. A room embeds what it uses, and nothing above it:
//
//	Store
//	upkeep                     the background jobs: rescue, promote, rolls, schedules' ticks
//	claims   tasks   settings  what workers, callers and owners ask for
//	trees    counts            dependencies, fan-outs, votes; statistics
//	hotPath                    submit, lease, settle; flow keys
//	core                       connections, clock, catalog, wake-ups; the rows of the tables
//
// The test of the architecture knows the room of each file.

// hotPath submits, leases and settles.
type hotPath struct {
	*core
	numbers     *numbers
	charges     submitCharges
	leasedRows  sync.Map    // of TableSet.Key to *atomic.Int64: see Vacuum
	distributed bool        // tenants are on several servers, see Distributed
	doubtful    atomic.Bool // leases may be committed that no node knows, see sure
}

func newHotPath(c *core) *hotPath {
	h := &hotPath{core: c}
	h.numbers = newNumbers(h)
	return h
}

// trees moves tasks on that depend on others, or wait for their children.
type trees struct {
	*core
	*hotPath
	edgeCursors sweepCursors[edgeCursor]
	treeCursors sweepCursors[fanOutKey]
	chunks      chunks // of FollowUp
}

// counts reads what was counted: statistics, backlogs, the attempts at endpoints.
type counts struct {
	*core
	minutes *endpointMinutes
}

// claims gives tasks to workers that ask for them.
type claims struct {
	*core
	*hotPath
	*trees
}

// tasks reads, lists and watches tasks, and changes one or many of them.
type tasks struct {
	*core
	*hotPath
	*trees
	*counts
	countTime time.Duration
}

// settings keeps what owners and operators configure: types, endpoints, schedules, tenants, alerts.
type settings struct {
	*core
	*hotPath
	*trees
	*counts
	creating *semaphore.Weighted // one tenant at a time
}

// upkeep does the work of the background jobs.
type upkeep struct {
	*core
	*hotPath
	*trees
	*counts
	*tasks
	*settings
}
