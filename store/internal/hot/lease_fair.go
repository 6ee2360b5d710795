package hot

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
)

// A lease of a fair type takes due tasks by turns of their flow keys. All nodes share the state of
// the turns: a row that a lease reads and writes under the type's lock. A lease
//
//  1. looks for keys with due tasks, from the last turn on: see lease_fair_keys.go
//  2. takes tasks that go before the turns: see lease_fair_priority.go
//  3. deals out its tasks to the keys
//  4. takes as many of the first due tasks of each key
//  5. deals out anew what keys had too few tasks for
//
// Tasks may stand in two ready tables, and in wait under a stage with capacity again. These are the
// sources; within a key, tasks are taken in their order over all sources.

const (
	// mostIdle is how many keys without a due task a lease passes.
	mostIdle = 500
	// mostDeals is how often a lease deals out tasks.
	mostDeals = 4
)

// fairTake takes the candidates of one lease of a fair type.
type fairTake struct {
	l         *limitedLease
	sources   []fairSource
	c         *candidates
	ring      *ring
	last      turn   // the turn before this lease
	start     turn   // after it the lease looks for keys: see filing
	passed    string // the last key that was looked at
	least     time.Time
	saturated bool        // there is no capacity in any stage: what is due is only filed
	closed    []string    // the stages without capacity
	beside    []Candidate // what it takes beside its walk
	seen      bool        // it looked at all due tasks
	more      bool        // there may be more due tasks
	memory    *fairType
	marks     *markedKeys          // while many tasks are due
	moved     bool                 // rows got a key
	ahead     map[fairSource]place // where the sweep for such rows goes on
}

// takeFair takes candidates in the order of the turns.
func (l *limitedLease) takeFair(
	ctx context.Context, memory *fairType, marks *markedKeys,
) ([]Candidate, error) {
	f := &fairTake{l: l, last: l.turn, memory: memory, marks: marks,
		c: &candidates{t: l.t, now: l.now, lines: map[string]place{}}}
	l.fair = f
	fresh, err := f.takeFresh(ctx)
	if err != nil {
		return nil, err
	}
	byTurns, err := f.takeTurns(ctx)
	if err != nil {
		return nil, err
	}
	rest, err := f.fill(ctx, l.n-f.open(byTurns))
	if err != nil {
		return nil, err
	}
	f.marks.filled()
	found := slices.Concat(fresh, byTurns, rest)
	f.c.found = found
	f.c.blockBehindLines()
	if !config.Ordered(l.t) {
		found = freshFirst(l.t, found, l.now)
	}
	return found, nil
}

// leaseFair is lease for a fair type.
func (l *limitedLease) leaseFair(ctx context.Context) error {
	memory := l.s.fair.ofType(l.t.Key())
	memory.mu.Lock() // leases of the type are one at a time anyway
	defer memory.mu.Unlock()
	l.scan.Persist() // see markedKeys
	marks := l.beginMarked(memory)
	err := l.leaseMarked(ctx, memory, marks)
	marks.end(memory, err)
	return err
}

func (l *limitedLease) leaseMarked(
	ctx context.Context, memory *fairType, marks *markedKeys,
) error {
	g := &l.result
	found, err := l.takeFair(ctx, memory, marks)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	if err := l.judge(ctx, b, found); err != nil {
		return err
	}
	g.Filed = len(found) > len(g.Leases) || l.fair.more
	if l.fair.more {
		g.Next = l.now
		l.scan.Left(longAgo) // nobody knows what is left
	} else {
		l.queueNext(b)
	}
	l.fair.noteBeside(g.Leases)
	end := "COMMIT"
	if !l.fair.queueTurn(b, found) && len(found) == 0 && !l.fair.moved {
		end = l.lock.End()
	}
	return NoteFailure(l.s, l.t.Tenant, l.end(ctx, b, end))
}

// longAgo is before each order_time.
var longAgo = time.Unix(0, 0)

// addSources finds the sources. Blocked tasks of a stage with endpoints that are tried after a
// failure get no turns.
func (f *fairTake) addSources(b *pgx.Batch) {
	t := f.l.t
	f.sources = liveSources(t)
	f.addCapacity()
	for _, stage := range f.l.stages {
		name, _ := t.Mapped(stage, 1)
		capacity := min(f.l.n, f.l.admission.Capacity(name))
		switch {
		case capacity > 0 && config.FreshFirst(t, name, f.l.now):
			f.c.queueStage(b, stage, name, capacity)
		case capacity > 0:
			f.sources = append(f.sources, fairSource{stage: stage})
		}
	}
}

// addCapacity limits the lease to the capacity of all stages.
func (f *fairTake) addCapacity() {
	sum := 0
	for _, stage := range f.l.t.StageNames() {
		capacity := min(f.l.n, f.l.admission.Capacity(stage))
		if sum += capacity; capacity == 0 {
			f.closed = append(f.closed, stage)
		}
	}
	if f.saturated = sum == 0; !f.saturated { // or else all are filed under what blocks them
		f.l.n = min(f.l.n, sum)
	}
	f.start = f.memory.filing.start(f.last, f.closed)
}

// takeFresh takes tasks that try endpoints, and now and then gives a key to rows without one.
func (f *fairTake) takeFresh(ctx context.Context) ([]Candidate, error) {
	b := &pgx.Batch{}
	f.addSources(b)
	sweep := &f.memory.keyless
	sweeps := sweep.due(f.l.t.Version, f.l.now)
	if sweeps {
		f.ahead = map[fairSource]place{}
		for _, source := range f.sources {
			f.queueKeyless(b, source, sweep.at[source])
		}
	}
	if b.Len() > 0 {
		if err := f.l.conn.Send(ctx, b); err != nil {
			return nil, err
		}
	}
	if sweeps {
		sweep.step(f.moved, f.ahead)
	}
	return f.taken(f.last), nil
}

// taken returns the candidates since the last call, each with the state of the turns after it.
func (f *fairTake) taken(after turn) []Candidate {
	some := f.c.found
	f.c.found = nil
	for i := range some {
		some[i].turn = after
	}
	return some
}

// takeTurns takes tasks of the keys by their turns.
func (f *fairTake) takeTurns(ctx context.Context) ([]Candidate, error) {
	if len(f.sources) == 1 { // the mark says nothing about other tables
		f.least = f.l.scan.From()
	}
	if err := f.findKeys(ctx); err != nil {
		return nil, err
	}
	some, err := f.takeRaised(ctx)
	if err != nil {
		return nil, err
	}
	inTurn, err := f.takeFrom(ctx, f.ring, f.l.n-f.open(some))
	if err != nil {
		return nil, err
	}
	some = append(some, inTurn...)
	f.seen = f.open(some) < f.l.n && f.ring.whole && !f.ring.some()
	f.more = !f.seen || !f.memory.keyless.swept
	if !f.more {
		f.memory.backlog = false
	}
	f.l.scan.Taken()
	f.marks.taken(some)
	return some, nil
}

// turn returns the state of the turns after a lease. A lease that only files tasks moves it only to
// come to further keys: otherwise a key that submits while its stage is without capacity would
// again and again give the next turn to the key behind it.
func (f *fairTake) turn(found []Candidate) turn {
	found = slices.DeleteFunc(slices.Clone(found), func(c Candidate) bool { return c.raised })
	last, any := lastTurn(found)
	f.memory.filing = filing{}
	if any && f.onlyFiled(found) {
		if !f.saturated && !f.seen {
			f.memory.filing = filing{f.last, f.closed, last}
		}
		return f.last
	}
	if !f.ring.whole && f.ring.at == len(f.ring.keys) &&
		!slices.ContainsFunc(found, func(c Candidate) bool { return c.Blocked != "" || c.back }) {
		return turn{f.passed, 0}
	}
	if !any {
		return f.last
	}
	return last
}

// queueTurn writes the state of the turns, if the lease changed it.
func (f *fairTake) queueTurn(b *pgx.Batch, found []Candidate) (written bool) {
	next := f.turn(found)
	if next == f.last {
		return false
	}
	b.Queue(f.l.t.SQL(0, `
		INSERT INTO {turns} (type, key, remaining) VALUES ($1, $2, $3)
		ON CONFLICT (type) DO UPDATE SET key = excluded.key, remaining = excluded.remaining`),
		f.l.t.Number(), next.key, next.left)
	return true
}

// queueTurns reads the state of the turns of a fair type.
func queueTurns(b *pgx.Batch, t *config.Type, into *turn) {
	if !t.Fair() {
		return
	}
	b.Queue(t.SQL(0, turnSQL), t.Number()).
		Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&into.key, &into.left},
				func() error { return nil })
			return err
		})
}
