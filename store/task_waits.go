package store

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// What keeps a due task in ready is not written down: a limit of its type or a quota of
// its tenant, which dispatchers look at before they lease. Whoever asks for the task has
// it found out, from what is under way and what was begun lately on all nodes. Where
// there are no such limits nothing is asked.

// heldBack returns what keeps the tasks of a type that are due from being leased now: a
// limit without room, else WaitCapacity.
func (s *Store) heldBack(ctx context.Context, t *Type) (asyncflow.WaitReason, error) {
	if why, err := s.heldByType(ctx, t); err != nil || why != "" {
		return why, err
	}
	return s.heldByQuota(ctx, t.Tenant)
}

// heldByType returns WaitType if a limit of a type has no room; else "".
func (s *Store) heldByType(ctx context.Context, t *Type) (asyncflow.WaitReason, error) {
	own := []*Type{t}
	return firstFull([]limit{
		{asyncflow.WaitType, t.MaxInFlight > 0, func() (bool, error) {
			n, err := s.countLeases(ctx, own, `true`)
			return n >= t.MaxInFlight, err
		}},
		{asyncflow.WaitType, !t.Rate.IsZero(),
			func() (bool, error) { return s.rateInUse(ctx, own, t.Rate.PerSecond()) }},
	})
}

// heldByQuota returns which quota of a tenant has no room; else WaitCapacity.
func (s *Store) heldByQuota(ctx context.Context, tenant string) (asyncflow.WaitReason, error) {
	var quotas asyncflow.Quotas
	if known, ok := s.Catalog.Tenant(tenant); ok {
		quotas = known.Quotas
	}
	all := slices.Collect(maps.Values(s.Catalog.TypesOf(tenant)))
	why, err := firstFull([]limit{
		{asyncflow.WaitConcurrency, quotas.Concurrency > 0, func() (bool, error) {
			n, err := s.countLeases(ctx, all, unansweredSQL, longestLease(all))
			nodes := int64(s.Dispatchers())
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

// limit is one that tasks may wait for.
type limit struct {
	reason asyncflow.WaitReason
	set    bool
	full   func() (bool, error)
}

// firstFull returns the reason of the first limit that is full; "": none is.
func firstFull(limits []limit) (asyncflow.WaitReason, error) {
	for _, l := range limits {
		if !l.set {
			continue
		}
		full, err := l.full()
		if sqlState(err) == "42P01" { // a type was deleted a moment ago
			continue
		}
		if err != nil || full {
			return l.reason, err
		}
	}
	return "", nil
}

// tellLimits fills in which limits tasks of one type wait for that are due.
func (s *Store) tellLimits(ctx context.Context, tenant string, tasks ...*Task) error {
	var reason asyncflow.WaitReason
	for _, task := range tasks {
		if task.WaitsFor != asyncflow.WaitCapacity {
			continue
		}
		if reason == "" {
			t, err := s.Catalog.Type(tenant, task.ID.Type)
			if err != nil {
				return err
			}
			if reason, err = s.heldBack(ctx, t); err != nil {
				return err
			}
		}
		task.WaitsFor = reason
	}
	return nil
}

// countLeases counts the leases of types of one tenant that meet a condition.
func (s *Store) countLeases(
	ctx context.Context, types []*Type, condition string, args ...any,
) (sum int, err error) {
	if len(types) == 0 { // they were deleted a moment ago
		return 0, nil
	}
	b := &pgx.Batch{}
	for _, t := range types {
		b.Queue(t.tables.at(0, `SELECT count(*) FROM {lease} WHERE `+condition),
			args...).QueryRow(func(row pgx.Row) error {
			var n int
			err := row.Scan(&n)
			sum += n
			return err
		})
	}
	return sum, s.of(types[0].Tenant).Send(ctx, b)
}

// unansweredSQL finds the leases that a node holds: what was answered with 202 stands for
// longer than any lease does at its beginning.
const unansweredSQL = `until <= leased_at + $1::interval`

func longestLease(types []*Type) (longest time.Duration) {
	for _, t := range types {
		for _, stage := range t.Stages {
			longest = max(longest, stage.Timeout.Std()+LeaseMargin)
		}
	}
	return longest
}

// rateInUse tells whether about as many tasks of some types were begun lately as a rate
// allows: those that are leased since, and the attempts that have ended since. Lately is a
// second, or as long as every node that dispatches has one to begin. The rate of a
// second is never met to the last task, since each node has its share of it.
func (s *Store) rateInUse(ctx context.Context, types []*Type, perSecond float64) (bool, error) {
	const nearly = 0.8
	span := max(1, float64(s.Dispatchers())/perSecond)
	since := s.Clock.Now().Add(-time.Duration(span * float64(time.Second)))
	begun, err := s.countLeases(ctx, types, `leased_at > $1`, since)
	if err != nil {
		return false, err
	}
	names := make([]string, len(types))
	for i, t := range types {
		names[i] = t.Name
	}
	var ended int
	err = s.of(types[0].Tenant).QueryRow(ctx,
		types[0].tables.at(0, `SELECT coalesce(sum(attempts), 0)::bigint FROM {tallies} WHERE type = `+
			`ANY ($1) AND at > $2`), names, since).Scan(&ended)
	return float64(begun+ended) >= max(1, nearly*perSecond*span), err
}
