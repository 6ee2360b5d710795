package lowwater

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

const (
	// quickLease is how long a lease that looks at everything may take: above it there are
	// marks.
	quickLease = 5 * time.Millisecond
	// markTrail is how far a mark is behind the database's time: most rows are
	// committed within it.
	markTrail = 500 * time.Millisecond
	// A lease that looks at everything (a whole lease) comes wholePause after the last one,
	// or wholeShare times as long as that took, but at most wholeMost. So whole leases take at most
	// one part in wholeShare of the time, as long as one takes less than a second; and no due row
	// is hidden for long, however busy the machine is.
	wholePause = time.Second
	wholeShare = 20
	wholeMost  = 15 * time.Second
	// hopelessLease is how long a failed lease took if it may have had too much to read. A silent
	// database looks the same, so a node gives up only at the second one in a row.
	hopelessLease = 3 * time.Second
)

// lowWater is the mark of one ready table on one node. Times of day are the database's;
// "at" is a time on this node's monotonic clock.
type lowWater struct {
	slow  bool
	mark  time.Time     // nothing is left below it, as far as the node knows; zero: none
	whole time.Duration // when the last whole lease began
	pause time.Duration // from then until the next one

	underway int       // leases
	least    time.Time // announced since no lease was under way; zero: nothing
	void     bool      // since then rows may have been inserted anywhere

	// When the last lease from a mark, and the last whole lease, ended if they failed as hopeless;
	// zero: they didn't.
	failed, wholeFailed time.Duration
	known               time.Time // the mark before whole leases that failed; zero: none
	// floor is the mark at which the node gave up. Until a whole lease succeeds, no announcement
	// brings leases below it.
	floor time.Time
}

// begin returns the order_time at which a lease begins to look; zero: it looks at
// everything. Each begin needs one end or undone.
func (w *lowWater) begin(now time.Time, at time.Duration) time.Time {
	if w.underway == 0 {
		w.least = time.Time{}
		w.void = false
	}
	w.underway++
	if !w.slow || w.mark.IsZero() || at >= w.whole+w.pause {
		return time.Time{}
	}
	return earlier(w.mark, now.Add(-markTrail))
}

// looked says what a lease has found.
type looked struct {
	from time.Time     // where it began to look; zero: everywhere
	mark time.Time     // the mark when it began
	now  time.Time     // it has seen what was due then
	at   time.Duration // when it began
	took time.Duration
	// persists: the next lease looks at the same if this one fails, however long that took.
	persists bool
	// last is the greatest order_time that it took, if there may be more, or that of the
	// head that it saw; zero: nothing is left.
	last time.Time
}

// end is called with what a lease has found.
func (w *lowWater) end(l looked) {
	w.underway--
	w.failed = 0
	if l.from.IsZero() {
		w.wholeFailed, w.known, w.floor = 0, time.Time{}, time.Time{}
	}
	mark := l.now.Add(-markTrail)
	if !l.last.IsZero() {
		mark = earlier(mark, l.last)
	}
	if !w.least.IsZero() {
		mark = earlier(mark, w.least)
	}
	switch {
	case w.void:
	case l.from.IsZero():
		w.lookedAtAll(l)
		w.mark = mark
	case mark.After(w.mark):
		w.mark = mark
	}
}

// lookedAtAll notes a whole lease.
func (w *lowWater) lookedAtAll(l looked) {
	w.whole = l.at
	w.pause = min(max(wholePause, wholeShare*l.took), wholeMost)
	w.slow = l.took > quickLease
}

// undone is called instead of end when a lease has taken nothing, or nobody knows what. What it
// took is back where it began to look or later; leases that passed it meanwhile don't know of it.
// So the next lease looks there as well, unless that is hopeless.
func (w *lowWater) undone(l looked) {
	w.underway--
	whole := l.from.IsZero()
	switch {
	case !whole || l.mark.IsZero():
	case !w.void:
		w.known = l.mark
	case !w.known.IsZero(): // another lease failed meanwhile
		w.known = earlier(w.known, l.mark)
	}
	switch {
	case w.hopeless(l):
		w.giveUp(l)
	case whole:
		w.mark, w.void = time.Time{}, true
	default:
		w.back(l.from)
	}
}

// hopeless reports whether this failed lease and the one of its kind before both took so long that
// they have too much to read. Leases at the same time count as one.
func (w *lowWater) hopeless(l looked) bool {
	failed := &w.failed
	if l.from.IsZero() {
		failed = &w.wholeFailed
	}
	if l.took < hopelessLease || l.persists {
		*failed = 0
		return false
	}
	if *failed > 0 {
		return l.at >= *failed
	}
	*failed = l.at + l.took
	return false
}

// giveUp is for leases that have too much to read. If the next ones began there, too, no task would
// begin any more. After whole leases they begin at the mark from before. If there was none, or if
// even the leases from it failed, they begin just before the time of the last one. What is below is
// hidden until a whole lease succeeds.
func (w *lowWater) giveUp(l looked) {
	mark := l.now.Add(-markTrail)
	if l.from.IsZero() {
		w.lookedAtAll(l)
		if !w.known.IsZero() {
			mark = earlier(w.known, mark)
		}
	}
	w.mark, w.floor = mark, mark
	w.back(mark)
}

// lower is called when a row with this order_time was inserted.
func (w *lowWater) lower(order time.Time) {
	if order.Before(w.floor) {
		w.note(order)
		return
	}
	w.back(order)
}

// back makes the next lease look from an order_time on, or before.
func (w *lowWater) back(order time.Time) {
	if w.mark.After(order) {
		w.mark = order
	}
	w.note(order)
}

// note keeps leases that are under way from setting the mark past a row.
func (w *lowWater) note(order time.Time) {
	if w.least.IsZero() || order.Before(w.least) {
		w.least = order
	}
}

// reset is called when rows may have been inserted anywhere.
func (w *lowWater) reset() {
	w.mark, w.void = time.Time{}, true
	w.failed, w.wholeFailed, w.known, w.floor = 0, 0, time.Time{}, time.Time{}
}

// next returns in how long the next lease has to look at everything; negative: only when a
// row is due.
func (w *lowWater) next(at time.Duration) time.Duration {
	if !w.slow {
		return -1
	}
	return max(0, w.whole+w.pause-at)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Bound returns a statement's parameter for rows from a time on; zero: all rows.
func Bound(from time.Time) pgtype.Timestamptz {
	if from.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: from, Valid: true}
}
