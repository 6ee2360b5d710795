package hot

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
)

// A walk from key to key ends when it passed mostIdle keys without a due task, perhaps before it
// found a key for each task of the lease. The next lease, of whichever node, walks on from there.
// Meanwhile the lease uses its capacity for other keys, which also take turns. These are
//
//   - the keys of the tasks that are due longest, and of the tasks that became due last: there a
//     key with few tasks is found before the walk comes to it
//   - the keys that leases of this node found on their walks
//
// Each node remembers these turns by itself. Nothing depends on them but who uses that capacity.

// mostAtEnds is how many of the first and of the last due tasks a lease reads for their keys.
const mostAtEnds = 500

// fillTurns is what a node remembers of the keys that leases fill up with.
type fillTurns struct {
	keys   map[string]bool // with due tasks, as far as the node knows: mostKnown at most
	last   turn            // of the last task that was started
	filing filing
	// first is the order_time of the first task that was due at the last lease that filled up;
	// zero: it isn't known.
	first time.Time
}

// fill takes n tasks, if the walk left some: a lease leaves no capacity unused.
func (f *fairTake) fill(ctx context.Context, n int) ([]Candidate, error) {
	if f.ring.whole {
		f.memory.beside = fillTurns{}
		return nil, nil
	}
	if n <= 0 {
		f.memory.beside.first = time.Time{}
		return nil, nil
	}
	r, err := f.fillRing(ctx)
	if err != nil {
		return nil, err
	}
	some, err := f.takeFrom(ctx, r, n)
	if err != nil {
		return nil, err
	}
	f.memory.beside.note(r)
	f.beside = some
	rest, err := f.fillInOrder(ctx, n-f.open(some))
	all := slices.Concat(some, rest)
	for i := range all {
		all[i].turn = turn{f.passed, 0}
	}
	return all, err
}

// fillRing returns the ring of keys that are served beside the walk.
func (f *fairTake) fillRing(ctx context.Context) (*ring, error) {
	keys := map[string]bool{}
	maps.Copy(keys, f.memory.beside.keys)
	if err := f.readEnds(ctx, keys); err != nil {
		return nil, err
	}
	for _, k := range f.ring.keys {
		keys[k.key] = true
		if k.empty {
			delete(keys, k.key)
		}
	}
	last := f.memory.beside.filing.start(f.memory.beside.last, f.closed)
	inTurn := slices.Sorted(maps.Keys(keys))
	behind, _ := slices.BinarySearch(inTurn, last.key)
	return f.wholeRing(slices.Concat(inTurn[behind:], inTurn[:behind]), last), nil
}

// readEnds adds the keys of the first and of the last due tasks. If leases are slow, it begins to
// look where the first task was at the last lease, or where unknown tasks begin: so do the
// statements that take tasks of these keys.
func (f *fairTake) readEnds(ctx context.Context, keys map[string]bool) error {
	memory := &f.memory.beside
	if least := f.leastFrom(memory.first); !least.IsZero() {
		f.least = least
	}
	memory.first = time.Time{}
	t := f.l.t
	rows, err := f.l.conn.Query(ctx, t.SQL(0, endsSQL(t, f.sources)), t.Number(), f.l.now,
		mostAtEnds, stagesOf(f.sources), lowwater.Bound(f.least))
	if err != nil {
		return err
	}
	var key *string
	var first time.Time
	_, err = pgx.ForEachRow(rows, []any{&key, &first}, func() error {
		if memory.first.IsZero() || first.Before(memory.first) {
			memory.first = first
		}
		if key != nil {
			keys[*key] = true
		}
		return nil
	})
	return err
}

// leastFrom returns where due tasks begin, if one was the first of them at the last lease; zero: it
// isn't known.
func (f *fairTake) leastFrom(first time.Time) time.Time {
	if from := f.marks.from(); len(f.sources) == 1 && !from.IsZero() && !first.IsZero() {
		return minTime(first, from)
	}
	return time.Time{}
}

// note remembers the keys of a ring with further due tasks.
func (m *fillTurns) note(r *ring) {
	m.keys = map[string]bool{}
	for _, k := range r.keys {
		if !k.empty && len(m.keys) < mostKnown {
			m.keys[k.key] = true
		}
	}
}

// fillInOrder takes the first due tasks in order, also from rows without a key.
func (f *fairTake) fillInOrder(ctx context.Context, n int) ([]Candidate, error) {
	if n <= 0 {
		return nil, nil
	}
	b := &pgx.Batch{}
	for _, source := range f.sources {
		if source.stage == "" {
			f.c.queueReady(b, source.position, f.l.now, n, f.l.scan)
			break
		}
	}
	err := f.l.conn.Send(ctx, b)
	some := f.taken(turn{})
	slices.SortStableFunc(some, func(a, b Candidate) int { return LeasesInOrder(a.Lease, b.Lease) })
	if len(some) < n { // the next lease reads what is due
		f.memory.backlog = false
	}
	return some, err
}

// endsSQL finds the keys of the first and of the last due tasks, from $5 on, each with the first
// order_time that was found of it.
func endsSQL(t *config.Type, sources []fairSource) string {
	var selects []string
	for i, s := range sources {
		for _, order := range []string{"order_time, id", "order_time DESC, id DESC"} {
			selects = append(selects, `(SELECT key, order_time FROM `+s.from(t, i, "$4")+`
				AND order_time <= $2 AND order_time >= $5 ORDER BY `+order+` LIMIT $3)`)
		}
	}
	return `SELECT key, min(order_time) FROM (` + strings.Join(selects, " UNION ALL ") + `) e
		GROUP BY key`
}
