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
	// hopelessLease is how long a failed lease took if it has too much to read: a next one from the
	// same place would fail as well.
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
	// last is the greatest order_time that it took, if there may be more, or that of the
	// head that it saw; zero: nothing is left.
	last time.Time
}

// end is called with what a lease has found.
func (w *lowWater) end(l looked) {
	w.underway--
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
func (w *lowWater) undone(l looked) {
	w.underway--
	switch {
	case l.took >= hopelessLease:
		w.giveUp(l)
	case l.from.IsZero():
		w.reset()
	default:
		w.lower(l.from)
	}
}

// giveUp is for a lease that failed because it has too much to read. If the next leases began
// there, too, no task would begin any more. So they begin at the mark from before a whole lease; if
// there was none, or if even the lease from it failed, just before their time, and where rows were
// announced meanwhile. What is below is hidden until the next whole lease, or until a background
// job announces the first due row.
func (w *lowWater) giveUp(l looked) {
	mark := l.now.Add(-markTrail)
	if l.from.IsZero() {
		w.lookedAtAll(l)
		if !l.mark.IsZero() && !w.void {
			mark = l.mark
		}
	}
	if !w.least.IsZero() {
		mark = earlier(mark, w.least)
	}
	w.mark = mark
	w.lower(mark)
}

// lower is called when a row with this order_time was inserted.
func (w *lowWater) lower(order time.Time) {
	if w.mark.After(order) {
		w.mark = order
	}
	if w.least.IsZero() || order.Before(w.least) {
		w.least = order
	}
}

// reset is called when rows may have been inserted anywhere.
func (w *lowWater) reset() { w.mark, w.void = time.Time{}, true }

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
