package counts

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
)

// The database doesn't record why a due task stays in ready: each node's ledger blocks the tasks of
// a type or a tenant that is over its limit. When a caller asks for the task, these limits are
// compared with the tasks in flight and the tasks begun lately, on all nodes. If there are no such
// limits, no statement runs.

// WhyDue returns why the due tasks of a type are not leased now: the first limit that is used up,
// else WaitCapacity. The order is that of a node's ledger.
func WhyDue(ctx context.Context, s *Counts, t *config.Type) (asyncflow.WaitReason, error) {
	if why, err := s.whyOfType(ctx, t); err != nil || why != "" {
		return why, err
	}
	return s.whyOfTenant(ctx, t.Tenant)
}

// whyOfType returns WaitType if a limit of a type is used up; else "".
func (s *Counts) whyOfType(ctx context.Context, t *config.Type) (asyncflow.WaitReason, error) {
	own := []*config.Type{t}
	return firstReached([]limit{
		{asyncflow.WaitType, t.MaxInFlight > 0, func() (bool, error) {
			n, err := s.countLeases(ctx, own, `true`)
			return n >= t.MaxInFlight, err
		}},
		{asyncflow.WaitType, !t.Rate.IsZero(),
			func() (bool, error) { return s.rateInUse(ctx, own, t.Rate.PerSecond()) }},
	})
}

// whyOfTenant returns which quota of a tenant is used up; else WaitCapacity.
func (s *Counts) whyOfTenant(ctx context.Context, tenant string) (asyncflow.WaitReason, error) {
	var quotas asyncflow.Quotas
	if known, ok := s.core.Catalog.Tenant(tenant); ok {
		quotas = known.Quotas
	}
	all := slices.Collect(maps.Values(s.core.Catalog.TypesOf(tenant)))
	why, err := firstReached([]limit{
		{asyncflow.WaitConcurrency, quotas.Concurrency > 0, func() (bool, error) {
			n, err := s.countLeases(ctx, all, unansweredSQL, longestLease(all))
			nodes := int64(s.core.Dispatchers())
			// each has its share, rounded up
			return int64(n) >= (quotas.Concurrency+nodes-1)/nodes*nodes, err
		}},
		{asyncflow.WaitDeliveries, quotas.DeliveriesPerSecond > 0,
			func() (bool, error) { return s.rateInUse(ctx, all, quotas.DeliveriesPerSecond) }},
	})
	if err == nil && why == "" {
		why = asyncflow.WaitCapacity
	}
	return why, err
}

// limit is a limit that tasks may wait for.
type limit struct {
	reason  asyncflow.WaitReason
	set     bool
	reached func() (bool, error)
}

// firstReached returns the reason of the first limit that is reached; "": none is.
func firstReached(limits []limit) (asyncflow.WaitReason, error) {
	for _, l := range limits {
		if !l.set {
			continue
		}
		reached, err := l.reached()
		if hot.IsUndefinedTable(err) { // a type was deleted a moment ago
			continue
		}
		if err != nil || reached {
			return l.reason, err
		}
	}
	return "", nil
}

// countLeases counts the leases of types of one tenant that meet a condition.
func (s *Counts) countLeases(
	ctx context.Context, types []*config.Type, condition string, args ...any,
) (sum int, err error) {
	if len(types) == 0 { // they were deleted a moment ago
		return 0, nil
	}
	err = s.core.DB(types[0].Tenant).QueryRow(ctx, types[0].SQL(0, `SELECT count(*) FROM {lease}
		WHERE type = ANY ($1) AND `+condition), append([]any{numbersOf(types)},
		args...)...).Scan(&sum)
	return sum, err
}

// numbersOf returns the numbers of types in rows.
func numbersOf(types []*config.Type) []int32 {
	numbers := make([]int32, len(types))
	for i, t := range types {
		numbers[i] = t.Number()
	}
	return numbers
}

// unansweredSQL selects the leases of tasks in flight: after a 202, a lease stands for longer than
// any lease does at its beginning.
const unansweredSQL = `until <= leased_at + $2::interval`

func longestLease(types []*config.Type) (longest time.Duration) {
	for _, t := range types {
		for _, stage := range t.Stages {
			longest = max(longest, stage.Timeout.Std()+hot.LeaseMargin)
		}
	}
	return longest
}

// rateInUse reports whether a rate is nearly used up by the tasks of some types begun lately. It
// counts leases and ended attempts since then. Lately is a second, or the time in which every
// dispatching node may begin one task. Nodes never use up a rate to the last task, since each has
// its share of it; so 80 % counts as used.
func (s *Counts) rateInUse(
	ctx context.Context, types []*config.Type, perSecond float64,
) (bool, error) {
	const nearly = 0.8
	span := max(1, float64(s.core.Dispatchers())/perSecond)
	since := s.core.Clock.Now().Add(-time.Duration(span * float64(time.Second)))
	begun, err := s.countLeases(ctx, types, `leased_at > $2`, since)
	if err != nil {
		return false, err
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	var ended int
	err = s.core.DB(types[0].Tenant).QueryRow(ctx,
		types[0].SQL(0, `SELECT coalesce(sum(attempts), 0)::bigint FROM {tallies}
			WHERE type = ANY ($1) AND at > $2`), names, since).Scan(&ended)
	return float64(begun+ended) >= max(1, nearly*perSecond*span), err
}
