package counts

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgerrcode"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// RateWindow is the time over which rates are computed. Its tallies are not folded.
const RateWindow = time.Minute

// Stats are the counts of a task type.
type Stats struct {
	Type   string
	Paused bool
	// Tasks by status. Final tasks are counted since the type was created; a redrive takes its
	// task off again.
	Waiting, Pending, Running    int64
	Succeeded, Failed, Cancelled int64
	Expired                      int64 // how many of Failed expired
	// OldestDue is when the oldest task of the backlog became due. That is the later of its
	// order_time and the moment it got to its stage, so that a head start by priority is no
	// delay. Zero if no task is due.
	OldestDue time.Time
	Backlog   []Backlog // due tasks that are not under way, by reason; oldest first
	Rates     Rates
	Rolls     int // how many there are
	// Latency is that of the attempts at the type's endpoints in asyncflow.FailureWindow. Claimed
	// tasks have no endpoint, and don't count.
	Latency asyncflow.Latency
	// LargestKeys are of a fair type, if the caller asked for one type: see KeyTasks.
	LargestKeys []KeyTasks
	// TypeTimes are of asyncflow.FailureWindow, too.
	TypeTimes
}

// ByStatus returns the number of tasks of a status.
func (s Stats) ByStatus(status asyncflow.Status) int64 {
	return map[asyncflow.Status]int64{
		asyncflow.StatusWaiting: s.Waiting, asyncflow.StatusPending: s.Pending,
		asyncflow.StatusRunning: s.Running, asyncflow.StatusSucceeded: s.Succeeded,
		asyncflow.StatusFailed: s.Failed, asyncflow.StatusCancelled: s.Cancelled,
	}[status]
}

// Rates are per second, over the last minute.
type Rates struct {
	Submitted float64
	Attempts  float64 // attempts that ended
	Failures  float64 // attempts that ended with another outcome than done
	Snoozes   float64 // attempts that workers put off, and that don't count
	Finished  float64 // tasks that became final
}

// Stats counts the tasks of a tenant's types, by name, or of one type unless taskType is "";
// CodeNotFound when there is no such type. All counts of a type are of the same moment.
//
// It counts the token rows one by one (measured: 90 ms of the server for a million in `ready`, 55
// of them for the bare count; 70 ms for 100,000 due ones in `wait`). It adds up tallies (20 ms for
// a minute in which 60,000 transactions counted, 1 ms once they are folded), and reads the tallies
// of all the tenant's types for that. It doesn't look at final tasks. Tasks that wait for their
// time cost nothing but their count.
//
// Latencies take one more statement, which reads the last minutes of the endpoints in use (measured
// with 1,000 types: 2 % of the whole if each has such an endpoint, and nothing if none has).
//
// OldestDue is exact, though no index has it: the scan that counts also finds it, as each token
// row says since when its task has been due where order_time doesn't (see sinceOf). An index on
// that would cost each task more than the scan costs each scrape.
func (s *Counts) Stats(ctx context.Context, tenant, taskType string) ([]Stats, error) {
	all, err := s.stats(ctx, tenant, taskType)
	// A type was deleted, or a roll dropped, a moment ago.
	if postgres.State(err) == pgerrcode.UndefinedTable {
		if err := s.core.Catalog.RefreshTenant(ctx, tenant); err != nil {
			return all, postgres.Wrap(err, "Stats(%q, %q)", tenant, taskType)
		}
		all, err = s.stats(ctx, tenant, taskType)
	}
	return all, postgres.Wrap(err, "Stats(%q, %q)", tenant, taskType)
}

// statsTables is about how many ready tables one statement reads. Most types share theirs.
const statsTables = 50

func (s *Counts) stats(ctx context.Context, tenant, taskType string) ([]Stats, error) {
	ctx = postgres.Patient(ctx)
	types := s.core.Catalog.TypesOf(tenant)
	if taskType != "" {
		t, err := s.core.Catalog.Fresh(ctx, tenant, taskType)
		if err != nil {
			return nil, err
		}
		types = map[string]*config.Type{taskType: t}
	}
	since := s.core.Clock.Now().Add(-asyncflow.FailureWindow)
	latencies, err := s.typeLatencies(ctx, tenant, taskType, since)
	if err != nil {
		return nil, err
	}
	times, err := s.typeTimes(ctx, tenant, taskType, since)
	if err != nil {
		return nil, err
	}
	var all []Stats
	for _, some := range ByTables(slices.Collect(maps.Values(types))) {
		counts, err := s.countTypes(ctx, tenant, some, true)
		if err != nil {
			return nil, err
		}
		if err := s.addBacklogs(ctx, tenant, counts); err != nil {
			return nil, err
		}
		for _, c := range counts {
			c.Latency = latencies[c.Type]
			c.TypeTimes = times[c.Type]
			if taskType != "" {
				if c.LargestKeys, err = s.largestKeysOf(ctx, c.t); err != nil {
					return nil, err
				}
			}
			all = append(all, c.Stats)
		}
	}
	slices.SortFunc(all, func(a, b Stats) int { return cmp.Compare(a.Type, b.Type) })
	return all, nil
}

// ByTables divides types among statements: types with the same tables go together.
func ByTables(types []*config.Type) (statements [][]*config.Type) {
	together := map[string][]*config.Type{}
	for _, t := range types {
		together[config.Readies(t)] = append(together[config.Readies(t)], t)
	}
	var last []*config.Type
	tables := 0
	for _, tablesOf := range slices.Sorted(maps.Keys(together)) {
		some := together[tablesOf]
		last = append(last, some...)
		tables += len(some[0].Live())
		if tables >= statsTables {
			statements = append(statements, last)
			last = nil
			tables = 0
		}
	}
	if len(last) > 0 {
		statements = append(statements, last)
	}
	return statements
}
