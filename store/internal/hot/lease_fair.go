package hot

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
)

// A lease of a fair type takes due tasks by turns of their flow keys. All nodes share the state of
// the turns: a row that a lease reads and writes under the type's lock. A lease
//
//  1. looks for keys with due tasks, from the last turn on: see lease_fair_keys.go
//  2. deals out its tasks to them
//  3. takes as many of the first due tasks of each key
//  4. deals out anew what keys had too few tasks for
//
// Tasks may stand in two ready tables, and in wait under a stage that has capacity again. These are
// the sources; within a key, tasks are taken in their order over all sources.

const (
	// mostIdle is how many keys without a due task a lease passes.
	mostIdle = 500
	// mostDeals is how often a lease deals out tasks.
	mostDeals = 4
)

// fairTake takes the candidates of one lease of a fair type.
type fairTake struct {
	l       *limitedLease
	sources []fairSource
	c       *candidates
	ring    *ring
	last    turn   // the turn before this lease
	passed  string // the last key that was looked at
	least   time.Time
	more    bool // there may be more due tasks
	memory  *fairType
	marks   *markedKeys          // while many tasks are due
	moved   bool                 // rows got a key
	ahead   map[fairSource]place // where the sweep for such rows goes on
}

// takeFair takes candidates in the order of the turns.
func (l *limitedLease) takeFair(
	ctx context.Context, memory *fairType, marks *markedKeys,
) ([]Candidate, error) {
	f := &fairTake{l: l, last: l.turn, memory: memory, marks: marks,
		c: &candidates{t: l.t, now: l.now, lines: map[string]place{}}}
	b := &pgx.Batch{}
	f.addSources(b)
	if err := f.takeFresh(ctx, b); err != nil {
		return nil, err
	}
	if len(f.sources) == 1 { // the mark says nothing about other tables
		f.least = l.scan.From()
	}
	fresh := len(f.c.found)
	for i := range f.c.found {
		f.c.found[i].turn = f.last
	}
	if err := f.findKeys(ctx); err != nil {
		return nil, err
	}
	first := f.ring.left
	n := l.n
	for range mostDeals {
		taken, err := f.deal(ctx, n)
		if err != nil {
			return nil, err
		}
		if n -= taken; n <= 0 || !f.ring.some() {
			break
		}
	}
	f.more = n <= 0 || !f.ring.whole || f.ring.some() || !f.memory.keyless.swept
	if !f.more {
		f.memory.backlog = false
	}
	l.scan.Taken()
	f.marks.taken(f.c.found[fresh:])
	rest := f.c.found[fresh:]
	found := append(f.c.found[:fresh:fresh], f.ring.inTurn(rest, first)...)
	if !f.ring.whole && n > 0 {
		if err := f.fill(ctx, n); err != nil {
			return nil, err
		}
		found = append(found, f.c.found[fresh+len(rest):]...)
	}
	l.fair = f
	f.c.found = found
	f.c.blockBehindLines()
	if !config.Ordered(l.t) {
		found = freshFirst(l.t, found, l.now)
	}
	return found, nil
}

// leaseFair is lease for a fair type.
func (l *limitedLease) leaseFair(ctx context.Context) error {
	memory := l.s.turns.of(l.t.Key())
	memory.mu.Lock() // leases of the type are one at a time anyway
	defer memory.mu.Unlock()
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
	if g.Keys, err = judge(ctx, l.conn, l.t, found, l.admission, l.n); err != nil {
		return err
	}
	for _, c := range found {
		g.Blocked = g.Blocked || c.Blocked != "" && c.Blocked != asyncflow.WaitFlow
	}
	b := &pgx.Batch{}
	g.Leases, g.back = l.s.queueJudged(b, l.t, found, l.now)
	g.Filed = len(found) > len(g.Leases) || l.fair.more
	if l.fair.more {
		g.Next = l.now
		l.scan.Left(longAgo) // nobody knows what is left
	} else {
		l.queueNext(b)
	}
	end := "COMMIT"
	if !l.fair.queueTurn(b, found) && len(found) == 0 && !l.fair.moved {
		end = l.lock.End()
	}
	return NoteFailure(l.s, l.end(ctx, b, end))
}

// longAgo is before each order_time.
var longAgo = time.Unix(0, 0)

// addSources finds the sources. Blocked tasks of a stage whose endpoints are tried after a failure
// have no turns.
func (f *fairTake) addSources(b *pgx.Batch) {
	t := f.l.t
	for _, p := range t.Live() {
		f.sources = append(f.sources, fairSource{position: p})
	}
	sum := 0
	for _, stage := range t.StageNames() {
		sum += min(f.l.n, f.l.admission.Capacity(stage))
	}
	if sum > 0 { // none: all are filed under what blocks them
		f.l.n = min(f.l.n, sum)
	}
	for _, stage := range f.l.stages {
		name, _ := t.Place(stage, 1)
		capacity := min(f.l.n, f.l.admission.Capacity(name))
		switch {
		case capacity > 0 && config.FreshFirst(t, name, f.l.now):
			f.c.queueStage(b, stage, name, capacity)
		case capacity > 0:
			f.sources = append(f.sources, fairSource{stage: stage})
		}
	}
}

// takeFresh takes tasks that try endpoints, and now and then gives a key to rows without one.
func (f *fairTake) takeFresh(ctx context.Context, b *pgx.Batch) error {
	sweep := &f.memory.keyless
	sweeps := sweep.due(f.l.t.Version, f.l.now)
	if sweeps {
		f.ahead = map[fairSource]place{}
		for _, source := range f.sources {
			f.queueKeyless(b, source, sweep.at[source])
		}
	}
	if b.Len() == 0 {
		return nil
	}
	err := f.l.conn.Send(ctx, b)
	if sweeps && err == nil {
		sweep.step(f.moved, f.ahead)
	}
	return err
}

// some reports whether a key may have further due tasks in this lease.
func (r *ring) some() bool {
	return r.at < len(r.keys) &&
		slices.ContainsFunc(r.keys, func(k ringKey) bool { return !k.empty })
}

// deal deals out n tasks and takes them. It returns how many it took.
func (f *fairTake) deal(ctx context.Context, n int) (taken int, err error) {
	shares := f.ring.deal(n)
	var keys []string
	var most []int
	for i, share := range shares {
		if share > 0 {
			keys = append(keys, f.ring.keys[i].key)
			most = append(most, share)
		}
	}
	if len(keys) == 0 {
		return 0, nil
	}
	bySource, err := f.split(ctx, keys, most)
	if err != nil {
		return 0, err
	}
	before := len(f.c.found)
	b := &pgx.Batch{}
	for i, source := range f.sources {
		source.queueTake(b, f, keys, bySource[i])
	}
	err = f.l.conn.Send(ctx, b)
	got := map[string]int{}
	slices.SortStableFunc(f.c.found[before:],
		func(a, b Candidate) int { return LeasesInOrder(a.Lease, b.Lease) })
	for _, c := range f.c.found[before:] {
		got[c.LineKey]++
	}
	for i, share := range shares {
		if k := &f.ring.keys[i]; got[k.key] < share {
			k.empty = true
		}
	}
	return len(f.c.found) - before, err
}

// split returns how many of the first due tasks of each key are in which source.
func (f *fairTake) split(ctx context.Context, keys []string, most []int) ([][]int, error) {
	if len(f.sources) == 1 {
		return [][]int{most}, nil
	}
	counts := make([][]int, len(f.sources))
	for i := range counts {
		counts[i] = make([]int, len(keys))
	}
	rows, err := f.l.conn.Query(ctx, f.l.t.SQL(0, splitSQL(f.l.t, f.sources)), f.l.t.Number(), keys,
		most, f.l.now, lowwater.Bound(f.least), stagesOf(f.sources))
	if err != nil {
		return nil, err
	}
	var key, source, n int
	_, err = pgx.ForEachRow(rows, []any{&key, &source, &n}, func() error {
		counts[source][key-1] = n
		return nil
	})
	return counts, err
}

// fill takes the first due tasks in order, regardless of turns: a lease that has passed mostIdle
// keys leaves no capacity unused.
func (f *fairTake) fill(ctx context.Context, n int) error {
	b := &pgx.Batch{}
	for _, source := range f.sources {
		if source.stage == "" {
			f.c.queueReady(b, source.position, f.l.now, n, f.l.scan)
			break
		}
	}
	before := len(f.c.found)
	err := f.l.conn.Send(ctx, b)
	slices.SortStableFunc(f.c.found[before:],
		func(a, b Candidate) int { return LeasesInOrder(a.Lease, b.Lease) })
	for i := range f.c.found[before:] {
		f.c.found[before+i].turn = turn{f.passed, 0}
	}
	if len(f.c.found)-before < n { // the next lease reads what is due
		f.memory.backlog = false
	}
	return err
}

// turn returns the state of the turns after a lease.
func (f *fairTake) turn(found []Candidate) turn {
	last, any := lastTurn(found)
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
