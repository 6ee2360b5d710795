package store

import (
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// While a transaction elsewhere is open for long, the index entries of token rows that
// were leased since can't be cleaned away, and every lease walks over all of them
// (measured at 7,000 tasks/s: from 1 ms to 30 ms within seconds, then a backlog that
// grows). So once leases of a ready table are slow, they begin at a low-water mark: an
// order_time below which everything was taken when a lease last looked.
//
// Rows may come in below the mark: retries, priorities, what was inserted earlier than
// its commit, the rows of a lease that was rolled back. Who inserts tells (Announce, and
// NOTIFY to other nodes), and the mark is lowered. What nobody told of is found by a
// lease that looks at everything, once in a while: that bounds how long a task that is
// due stays hidden.
const (
	// quickLease is what a lease may take of everything: above it there are marks.
	quickLease = 5 * time.Millisecond
	// markTrail is how far a mark is behind the database's time: most rows are
	// committed within it.
	markTrail = 500 * time.Millisecond
	// A whole lease comes after wholePause, or wholeShare times as long as the last
	// one took: it costs one part in so many.
	wholePause = time.Second
	wholeShare = 20
)

// lowWater is the mark of one ready table on one node. Times of day are the database's;
// at is a time on this node's monotonic clock.
type lowWater struct {
	slow  bool
	mark  time.Time     // below it nothing is left, as far as is known; zero: none
	whole time.Duration // at which the last whole lease began
	pause time.Duration // after that until the next one

	underway int       // leases
	least    time.Time // of what was told since there were none under way; zero: nothing
	void     bool      // everything is in doubt since then
}

// begin returns the order_time at which a lease is to begin looking; zero: it is to
// look at everything. Each begin needs one end.
func (w *lowWater) begin(now time.Time, at time.Duration) time.Time {
	if w.underway == 0 {
		w.least, w.void = time.Time{}, false
	}
	w.underway++
	if !w.slow || w.mark.IsZero() || at >= w.whole+w.pause {
		return time.Time{}
	}
	return earlier(w.mark, now.Add(-markTrail))
}

// looked is what a lease has found.
type looked struct {
	from time.Time     // where it began to look; zero: everywhere
	now  time.Time     // it has seen what was due then
	at   time.Duration // when it began
	took time.Duration
	last time.Time // the greatest that it took, if there may be more, or that of the head it saw; zero: nothing is left
}

// end takes in what a lease has found.
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
		w.whole, w.pause = l.at, max(wholePause, wholeShare*l.took)
		w.slow, w.mark = l.took > quickLease, mark
	case mark.After(w.mark):
		w.mark = mark
	}
}

// undone takes in that a lease has taken nothing, or that nobody knows.
func (w *lowWater) undone() {
	w.underway--
	w.reset()
}

// lower takes in that a row with this order_time was inserted.
func (w *lowWater) lower(order time.Time) {
	if w.mark.After(order) {
		w.mark = order
	}
	if w.least.IsZero() || order.Before(w.least) {
		w.least = order
	}
}

// reset takes in that rows may have been inserted anywhere.
func (w *lowWater) reset() { w.mark, w.void = time.Time{}, true }

// next tells in how long the next lease is to look at everything: negative when there
// is no need to look before something is due.
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

// bound returns the parameter of a statement that looks from a time on.
func bound(from time.Time) pgtype.Timestamptz {
	if from.IsZero() {
		return pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}
	}
	return pgtype.Timestamptz{Time: from, Valid: true}
}
