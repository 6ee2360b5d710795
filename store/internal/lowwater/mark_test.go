package lowwater

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

// ready is a ready table, and the mark by which a node's leases look at it.
type ready struct {
	t     *rapid.T
	mark  lowWater
	now   time.Duration // both clocks
	rows  []*readyRow
	scans []*readyScan  // under way
	bound time.Duration // how long a row may be hidden
}

type readyRow struct {
	order   time.Duration
	visible time.Duration // since when a lease can take it
	told    bool          // it was announced to the node
	locked  bool          // by a lease of another node
}

// readyScan is a lease under way.
type readyScan struct {
	looked
	n     int
	taken []*readyRow
}

var epoch = time.Unix(1_700_000_000, 0)

func day(d time.Duration) time.Time { return epoch.Add(d) }

func (r *ready) pass(most time.Duration) {
	r.now += time.Duration(rapid.Int64Range(1, int64(most)).Draw(r.t, "pass"))
}

// insert makes a row visible: that of a new task, of a task with a head start, of a rescued
// task, or of a task that was submitted long before its commit.
func (r *ready) insert() {
	before := rapid.SampledFrom([]time.Duration{
		0, time.Millisecond, 100 * time.Millisecond, 3 * time.Second, time.Hour,
	}).Draw(r.t, "before")
	row := &readyRow{order: r.now - before, visible: r.now}
	if rapid.Bool().Draw(r.t, "soon") {
		row.order = r.now + before%time.Minute
	}
	r.rows = append(r.rows, row)
}

// tell announces a row, at any time after its insert. Some rows are never announced.
func (r *ready) tell() {
	var quiet []*readyRow
	for _, row := range r.rows {
		if !row.told {
			quiet = append(quiet, row)
		}
	}
	if len(quiet) > 0 {
		row := rapid.SampledFrom(quiet).Draw(r.t, "row")
		row.told = true
		r.mark.lower(day(row.order))
	}
}

// begin begins a lease and checks what it sees.
func (r *ready) begin() {
	if len(r.scans) == 2 {
		return
	}
	s := &readyScan{n: rapid.IntRange(1, 5).Draw(r.t, "n")}
	r.scans = append(r.scans, s)
	s.now, s.at = day(r.now), r.now
	s.looked.mark = r.mark.mark
	s.from = r.mark.begin(s.now, s.at)
	due := slices.DeleteFunc(slices.Clone(r.rows), func(row *readyRow) bool {
		return row.order > r.now || row.locked
	})
	slices.SortFunc(due, func(a, b *readyRow) int { return int(a.order - b.order) })
	for _, row := range due {
		if len(s.taken) == s.n {
			break
		}
		if !day(row.order).Before(s.from) {
			s.taken = append(s.taken, row)
			continue
		}
		if row.told {
			r.t.Fatalf("a row was announced, and the lease looks above it: %v", row)
		}
		if row.visible+r.bound <= r.now {
			r.t.Fatalf("a row is hidden for longer than %s: %v", r.bound, row)
		}
	}
	r.rows = slices.DeleteFunc(r.rows, func(row *readyRow) bool {
		return slices.Contains(s.taken, row)
	})
}

// end ends a lease: by a commit, or by a rollback that brings its rows back. After a rollback of a
// lease that had too much to read, rows below the mark are hidden anew.
func (r *ready) end() {
	if len(r.scans) == 0 {
		return
	}
	i := rapid.IntRange(0, len(r.scans)-1).Draw(r.t, "which")
	s := r.scans[i]
	r.scans = slices.Delete(r.scans, i, i+1)
	s.took = time.Duration(rapid.SampledFrom([]int{1, 5, 6, 70, 200, 2000, 6000}).
		Draw(r.t, "took")) * time.Millisecond
	if rapid.IntRange(0, 3).Draw(r.t, "fate") == 0 {
		for _, row := range s.taken {
			row.told, row.visible = true, r.now
		}
		r.rows = append(r.rows, s.taken...)
		r.mark.undone(s.looked)
		if s.took >= hopelessLease {
			r.hideBelow(r.mark.mark)
		}
		return
	}
	if s.from.IsZero() {
		r.bound = min(max(time.Second, 20*s.took), 15*time.Second)
	}
	if len(s.taken) == s.n {
		for _, row := range s.taken {
			if day(row.order).After(s.last) {
				s.last = day(row.order)
			}
		}
	}
	r.mark.end(s.looked)
}

// hideBelow notes that the rows below a mark may be hidden from now on, until the next lease that
// looks at everything.
func (r *ready) hideBelow(mark time.Time) {
	r.bound = 15 * time.Second
	for _, row := range r.rows {
		if day(row.order).Before(mark) {
			row.told, row.visible = false, r.now
		}
	}
}

// lock lets another node lease a row, and give it back after a while.
func (r *ready) lock() {
	if len(r.rows) > 0 {
		row := rapid.SampledFrom(r.rows).Draw(r.t, "row")
		if row.locked { // given back without an announcement
			row.told, row.visible = false, r.now
		}
		row.locked = !row.locked
	}
}

// However rows come in and are announced: an announced row is never hidden from the node's
// leases, unless one of them failed for too much to read, and no due row is hidden for longer than
// the bound. The bound is a second, or 20 times as long as the last lease that looked at everything
// took, but at most 15 seconds.
func TestNothingStaysHidden(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &ready{t: t, now: time.Hour}
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) { r.t = t; r.insert() },
			"tell":   func(t *rapid.T) { r.t = t; r.tell() },
			"begin":  func(t *rapid.T) { r.t = t; r.begin() },
			"lease":  func(t *rapid.T) { r.t = t; r.begin(); r.end() },
			"end":    func(t *rapid.T) { r.t = t; r.end() },
			"lock":   func(t *rapid.T) { r.t = t; r.lock() },
			"moment": func(t *rapid.T) { r.t = t; r.pass(20 * time.Millisecond) },
			"while":  func(t *rapid.T) { r.t = t; r.pass(2 * time.Second) },
			"news lost": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
					r.mark.reset()
				}
			},
		})
	})
}

// lease makes one lease that takes all rows, and returns where it began.
func lease(w *lowWater, at, took time.Duration) time.Time {
	from := w.begin(day(at), at)
	w.end(looked{from: from, now: day(at), at: at, took: took})
	return from
}

func TestLowWater(t *testing.T) {
	t.Parallel()
	const quick, slow = 5 * time.Millisecond, 60 * time.Millisecond
	var w lowWater
	assert.Zero(t, lease(&w, time.Hour, quick))
	assert.Zero(t, lease(&w, time.Hour+time.Millisecond, quick), "no mark while leases are quick")
	assert.Negative(t, w.next(time.Hour))
	at := time.Hour + time.Second
	assert.Zero(t, lease(&w, at, slow))
	for range 10 {
		at += 100 * time.Millisecond
		assert.Equal(t, day(at-100*time.Millisecond-markTrail), lease(&w, at, slow),
			"the mark trails the time of the lease before")
	}
	assert.Equal(t, 200*time.Millisecond, w.next(at),
		"1.2 s after the last one that looked at everything")
	w.lower(day(time.Minute))
	assert.Equal(t, day(time.Minute), lease(&w, at, slow), "where a row came in")
	assert.Equal(t, day(at-markTrail), lease(&w, at, slow), "and was taken")
	at += 200 * time.Millisecond
	assert.Zero(t, lease(&w, at, quick), "the lease that looks at everything")
	assert.Zero(t, lease(&w, at, slow), "was quick: no mark any more")
	assert.NotZero(t, lease(&w, at, slow))
	w.reset()
	assert.Zero(t, lease(&w, at, slow), "all is in doubt")
	w.begin(day(at), at)
	w.undone(looked{})
	assert.Zero(t, lease(&w, at, slow), "what was taken is back")
	assert.Equal(t, day(time.Minute-markTrail), w.begin(day(time.Minute), at),
		"the database's clock was set back")
}

// A full lease has seen no further than the last row that it took. One that found many
// hidden rows sets the mark back to them.
func TestLowWaterOfAFullLease(t *testing.T) {
	t.Parallel()
	var w lowWater
	at := time.Hour
	full := func(last time.Duration) {
		from := w.begin(day(at), at)
		w.end(looked{from: from, now: day(at), at: at, took: 10 * time.Millisecond,
			last: day(last)})
	}
	full(time.Minute)
	assert.Equal(t, day(time.Minute), w.mark)
	full(2 * time.Minute)
	assert.Equal(t, day(2*time.Minute), w.mark)
	at += time.Second
	full(time.Second)
	assert.Equal(t, day(time.Second), w.mark, fmt.Sprint(w))
}

// While leases have too much to read and fail, tasks that come begin all the same, and the next
// leases look at everything only once in a while. What is hidden is found once it is announced.
func TestLeasesThatFailForTooMuchToRead(t *testing.T) {
	t.Parallel()
	const tooLong = 6 * time.Second
	var w lowWater
	at := time.Hour
	fail := func() (from time.Time) {
		l := looked{mark: w.mark, from: w.begin(day(at), at), now: day(at), at: at, took: tooLong}
		at += tooLong
		w.undone(l)
		return l.from
	}
	assert.Zero(t, fail(), "a node that begins looks at everything")
	assert.Equal(t, day(at-tooLong-markTrail), lease(&w, at, time.Millisecond), "not again")
	known := day(at - markTrail)
	at += wholeMost
	assert.Zero(t, fail(), "once in a while")
	assert.Equal(t, known, lease(&w, at, time.Millisecond), "from where nothing was left")
	w.lower(day(time.Minute))
	assert.Equal(t, day(time.Minute), fail(), "a row far below was announced")
	assert.Equal(t, day(at-tooLong-markTrail), w.begin(day(at), at), "and is too far")
	w.lower(day(time.Minute))
	w.undone(looked{from: day(at - markTrail)})
	assert.Equal(t, day(time.Minute), w.mark)
}

// An announcement while a lease is under way counts: the lease may not have seen the row.
func TestAnnouncementDuringALease(t *testing.T) {
	t.Parallel()
	for name, news := range map[string]func(*lowWater){
		"lower": func(w *lowWater) { w.lower(day(time.Minute)) },
		"reset": (*lowWater).reset,
	} {
		t.Run(name, func(t *testing.T) {
			var w lowWater
			at := time.Hour
			lease(&w, at, time.Second)
			one, two := w.begin(day(at), at), w.begin(day(at), at)
			news(&w)
			w.end(looked{from: one, now: day(at), at: at, took: time.Second})
			w.end(looked{from: two, now: day(at), at: at, took: time.Second})
			assert.False(t, w.begin(day(at), at).After(day(time.Minute)))
		})
	}
}
