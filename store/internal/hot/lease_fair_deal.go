package hot

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/lowwater"
)

// takeFrom takes up to n tasks by the turns of a ring, and deals on past tasks of stages without
// capacity.
func (f *fairTake) takeFrom(ctx context.Context, r *ring, n int) ([]Candidate, error) {
	first := r.left
	for range mostDeals {
		taken, err := f.deal(ctx, r, n)
		if err != nil {
			return nil, err
		}
		if n -= taken; n <= 0 || !r.some() {
			break
		}
	}
	return r.inTurn(f.taken(turn{}), first), nil
}

// some reports whether there may be further due tasks of a key in this lease.
func (r *ring) some() bool {
	return r.at < len(r.keys) &&
		slices.ContainsFunc(r.keys, func(k ringKey) bool { return !k.empty })
}

// deal deals out n tasks of a ring and takes them. It returns how many it took of
// stages with capacity.
func (f *fairTake) deal(ctx context.Context, r *ring, n int) (taken int, err error) {
	shares := r.deal(n)
	var keys []string
	var most []int
	for i, share := range shares {
		if share > 0 {
			keys = append(keys, r.keys[i].key)
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
		if k := &r.keys[i]; got[k.key] < share {
			k.empty = true
		}
	}
	return f.open(f.c.found[before:]), err
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
