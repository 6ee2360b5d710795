package hot

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow/store/internal/lowwater"
)

// While a transaction is open for long, the index keeps the entries of leased tasks, and a walk
// from key to key reads the dead entries of each key on its way. If a walk was slow and found all
// keys, the node remembers them, each with a mark: nothing of the key is left below it, as far as
// the node knows. The next leases read the keys from their marks on, and find other keys among the
// tasks that came since. Package lowwater says since when, and when the next lease must walk: a
// mark of KeyMarks is where unknown tasks begin, not where any do. So a node doesn't give up walks
// that fail because they have too much to read: known keys have tasks below the mark.

const (
	// mostKnown is for how many keys there are marks: with more, leases walk.
	mostKnown = 1000
	// mostCame is how many tasks a lease reads to find the keys that came since the marks.
	mostCame = 5000
	// slowWalk is how long a lease takes at most from which no keys are remembered.
	slowWalk = 5 * time.Millisecond
)

// keyMarks is what a node remembers of flow keys between leases.
type keyMarks struct {
	slow bool                 // the last walk took longer than slowWalk
	all  map[string]time.Time // the marks of all keys with due tasks; nil: they aren't known
}

// markedKeys are the keys with marks in one lease; nil: the lease has none.
type markedKeys struct {
	scan  *lowwater.Scan
	begun time.Time
	keyMarks
}

// beginMarked begins a lease with the keys that are known; nil: few tasks are due.
func (l *limitedLease) beginMarked(memory *fairType) *markedKeys {
	if !memory.backlog {
		memory.known = keyMarks{}
		return nil
	}
	m := &markedKeys{scan: l.s.core.KeyMarks.Begin(l.t.Key(), l.from, l.now), begun: time.Now()}
	m.scan.Persist()
	m.keyMarks = memory.known
	return m
}

// end remembers the keys for the next lease.
func (m *markedKeys) end(memory *fairType, err error) {
	if m == nil {
		return
	}
	memory.known = m.keyMarks
	if err != nil {
		memory.known.all = nil
	}
	m.scan.End(time.Time{}, err)
}

// from returns where unknown tasks begin; zero: everywhere.
func (m *markedKeys) from() time.Time {
	if m == nil {
		return time.Time{}
	}
	return m.scan.From()
}

// filled notes that a lease read beside its walk, too.
func (m *markedKeys) filled() {
	if m != nil {
		m.scan.Taken()
	}
}

// mostKeys returns how many keys a walk of a lease of n tasks looks for.
func (m *markedKeys) mostKeys(n int) int {
	if m != nil && m.slow && m.scan.From().IsZero() {
		return max(n, mostKnown)
	}
	return n
}

// walked notes the keys that a walk found; all reports whether there are no others.
func (m *markedKeys) walked(keys []string, all bool) {
	if m == nil {
		return
	}
	m.all = nil
	if m.scan.From().IsZero() && all && len(keys) < mostKnown {
		m.all = map[string]time.Time{}
		for _, key := range keys {
			m.all[key] = longAgo
		}
	}
}

// taken notes the tasks that a lease took.
func (m *markedKeys) taken(found []Candidate) {
	if m == nil {
		return
	}
	m.scan.Taken()
	if m.scan.From().IsZero() {
		m.slow = time.Since(m.begun) > slowWalk
	}
	for _, c := range found {
		if mark, known := m.all[c.LineKey]; known && c.OrderTime.After(mark) {
			m.all[c.LineKey] = c.OrderTime
		}
	}
}

// bounds returns for each key the least order_time to look at.
func (m *markedKeys) bounds(keys []string, least time.Time) []pgtype.Timestamptz {
	all := make([]pgtype.Timestamptz, len(keys))
	for i, key := range keys {
		all[i] = lowwater.Bound(least)
		if m == nil {
			continue
		}
		if mark, known := m.all[key]; known {
			all[i] = lowwater.Bound(mark)
		}
	}
	return all
}

// readMarked makes the ring of the known keys and of those that came; false: not all are known.
func (f *fairTake) readMarked(ctx context.Context) (all bool, err error) {
	m := f.marks
	if m == nil || m.all == nil || m.scan.From().IsZero() || len(f.sources) != 1 || f.moved {
		return false, nil
	}
	from := m.scan.From()
	var known []string
	for key, mark := range m.all {
		known = append(known, key)
		m.all[key] = minTime(mark, from)
	}
	t := f.l.t
	rows, err := f.l.conn.Query(ctx, t.SQL(f.sources[0].position, MarkedSQL), t.Number(), known,
		m.bounds(known, from), f.l.now, from, mostCame, f.start.key)
	if err != nil {
		return false, err
	}
	marks := map[string]time.Time{}
	var keys []string
	var key string
	var n, came int
	_, err = pgx.ForEachRow(rows, []any{&key, &n}, func() error {
		came += n
		keys = append(keys, key)
		marks[key] = from
		if mark, known := m.all[key]; known {
			marks[key] = mark
		}
		return nil
	})
	m.all = marks
	f.ring = f.wholeRing(keys, f.start)
	return came < mostCame && len(keys) < mostKnown, err
}

// MarkedSQL finds the keys with due tasks among the known ones $2, from their marks on, and among
// the tasks that came since $5. It counts these tasks.
var MarkedSQL = `
SELECT key, sum(n)::int FROM (
  SELECT u.key, 0 AS n FROM unnest($2::text[], $3::timestamptz[]) AS u (key, mark), LATERAL (
    SELECT FROM {ready} WHERE type = $1 AND ` + fmt.Sprintf(dueOfKeySQL, "u.mark", "$4") + `
    LIMIT 1) h
  UNION ALL
  SELECT key, count(*) FROM (
    SELECT key FROM {ready} WHERE type = $1 AND order_time <= $4 AND order_time >= $5
    ORDER BY order_time, id LIMIT $6) c
  WHERE key IS NOT NULL GROUP BY key) k
GROUP BY key ORDER BY key > $7 DESC, key`

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
