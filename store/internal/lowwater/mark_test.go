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
	// What failed leases allow to be hidden: nothing before the second one in a row, of whole
	// leases and of those from a mark.
	failed, wholeFailed *readyScan
	known               time.Time // the mark before whole leases failed; zero: none
	floor               time.Time // rows below it may be hidden once they are announced
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
	over  time.Duration // when it ended
	void  bool          // news were lost meanwhile, or another lease failed
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
		row.told = !day(row.order).Before(r.floor)
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
	if s.from.After(s.now.Add(-markTrail)) {
		r.t.Fatalf("the lease passes what may just be committed: %v", s.from)
	}
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

// end ends a lease: by a commit, or by a rollback that brings its rows back.
func (r *ready) end() {
	if len(r.scans) == 0 {
		return
	}
	i := rapid.IntRange(0, len(r.scans)-1).Draw(r.t, "which")
	s := r.scans[i]
	r.scans = slices.Delete(r.scans, i, i+1)
	s.took = time.Duration(rapid.SampledFrom([]int{1, 5, 6, 70, 200, 2000, 6000}).
		Draw(r.t, "took")) * time.Millisecond
	s.over = s.at + s.took
	r.now = max(r.now, s.over)
	if rapid.IntRange(0, 3).Draw(r.t, "fate") == 0 {
		for _, row := range s.taken {
			row.told, row.visible = true, r.now
		}
		r.rows = append(r.rows, s.taken...)
		r.fail(s)
		r.mark.undone(s.looked)
		return
	}
	r.failed = nil
	if s.from.IsZero() {
		r.bound = min(max(time.Second, 20*s.took), 15*time.Second)
		r.wholeFailed, r.known, r.floor = nil, time.Time{}, time.Time{}
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

// fail notes what a failed lease allows to be hidden, until the next lease that looks at
// everything: below the mark from before, if the second whole lease in a row failed after seconds;
// if there was no mark, or if both began at one, what was due half a second before.
func (r *ready) fail(s *readyScan) {
	last := &r.failed
	if s.from.IsZero() {
		last = &r.wholeFailed
		switch mark := s.looked.mark; {
		case mark.IsZero():
		case !s.void:
			r.known = mark
		case mark.Before(r.known):
			r.known = mark
		}
	}
	again := *last != nil && s.at >= (*last).over
	switch {
	case s.took < 3*time.Second:
		*last = nil
	case *last == nil:
		*last = s
	}
	if s.took < 3*time.Second || !again {
		for _, other := range r.scans {
			other.void = other.void || s.from.IsZero()
		}
		return
	}
	r.floor = s.now.Add(-500 * time.Millisecond)
	if s.from.IsZero() && !r.known.IsZero() && r.known.Before(r.floor) {
		r.floor = r.known
	}
	r.bound = 15 * time.Second
	for _, row := range r.rows {
		if day(row.order).Before(r.floor) {
			row.told, row.visible = false, r.now
		}
	}
}

// loseNews makes the node look at everything: nothing may be hidden any more.
func (r *ready) loseNews() {
	for _, s := range r.scans {
		s.void = true
	}
	r.failed, r.wholeFailed, r.known, r.floor = nil, nil, time.Time{}, time.Time{}
	for _, row := range r.rows {
		row.told = true
	}
	r.mark.reset()
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

// However rows come in and are announced: an announced row is never hidden from the node's leases,
// unless two of them in a row failed for too much to read, and no due row is hidden for longer than
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
					r.loseNews()
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

// snapshot is a ready table with so many dead entries that leases from before a time fail.
type snapshot struct {
	lowWater
	at       time.Duration
	readable time.Duration // how far back a lease can read
	closed   bool          // it can read everything
	failed   int           // leases in a row
}

// lease makes one lease, which fails after 6 s if it has too much to read. It returns where it
// began. during is called while it is under way.
func (s *snapshot) lease(during func(*lowWater)) (from time.Time) {
	l := looked{mark: s.mark, now: day(s.at), at: s.at}
	l.from = s.begin(l.now, l.at)
	during(&s.lowWater)
	if !s.closed && l.from.Before(day(s.at-s.readable)) {
		l.took = 6 * time.Second
		s.failed++
		s.undone(l)
	} else {
		l.took = time.Millisecond
		s.failed = 0
		s.end(l)
	}
	s.at += l.took
	return l.from
}

func quiet(*lowWater) {}

// While leases have too much to read and fail, tasks that come begin all the same, and the next
// leases look at everything only once in a while. The first failure hides nothing: the database may
// have been silent.
func TestLeasesThatFailForTooMuchToRead(t *testing.T) {
	t.Parallel()
	s := &snapshot{at: time.Hour, readable: time.Minute}
	assert.Zero(t, s.lease(quiet), "a node that begins looks at everything")
	assert.Zero(t, s.lease(quiet), "once more")
	before := day(s.at - 6*time.Second - markTrail)
	assert.Equal(t, before, s.lease(quiet), "not a third time")
	known := s.mark
	s.at += wholeMost
	assert.Zero(t, s.lease(quiet), "once in a while")
	assert.Equal(t, known, s.lease(quiet), "from where nothing was left")
	s.lower(day(time.Minute))
	assert.True(t, s.lease(quiet).After(known), "what can't be read is hidden")
	s.closed = true
	s.at += wholeMost
	assert.Zero(t, s.lease(quiet), "the snapshot is closed")
	s.slow = true
	s.lower(day(time.Minute))
	assert.Equal(t, day(time.Minute), s.lease(quiet), "nothing is hidden any more")
}

// A mark below which nothing was left outlasts whole leases that fail, whatever is announced.
func TestTheMarkFromBeforeFailedLeases(t *testing.T) {
	t.Parallel()
	s := &snapshot{at: time.Hour, readable: time.Minute}
	lease(&s.lowWater, s.at, time.Second)
	known := s.mark
	s.at += wholeMost
	headStart := func(w *lowWater) { w.lower(day(time.Minute)) }
	assert.Zero(t, s.lease(headStart))
	assert.Zero(t, s.lease(headStart))
	assert.Equal(t, known, s.lease(quiet))
}

// A lease that fails after the node may have missed announcements, and one beside another, are no
// second one in a row.
func TestFailuresThatAreNotInARow(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(s *snapshot){
		"news lost meanwhile": func(s *snapshot) { s.lease((*lowWater).reset) },
		"news lost before":    func(s *snapshot) { s.reset(); s.lease(quiet) },
		"at the same time": func(s *snapshot) {
			s.reset()
			l := looked{now: day(s.at), at: s.at, took: 6 * time.Second}
			s.begin(l.now, l.at)
			s.begin(l.now, l.at)
			s.undone(l)
			s.undone(l)
			s.at += l.took
		},
		"a quick failure between": func(s *snapshot) {
			s.undone(looked{from: s.begin(day(s.at), s.at), now: day(s.at), at: s.at})
			s.lease(quiet)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &snapshot{at: time.Hour, readable: time.Minute}
			assert.Zero(t, s.lease(quiet))
			fail(s)
			assert.Zero(t, s.lease(quiet), "nothing is hidden")
			assert.NotZero(t, s.lease(quiet))
		})
	}
}

// Some leases look again where they failed, however often: they say so.
func TestLeasesThatPersist(t *testing.T) {
	t.Parallel()
	var w lowWater
	for at := time.Hour; at < time.Hour+time.Minute; at += 6 * time.Second {
		l := looked{from: w.begin(day(at), at), now: day(at), at: at, took: 6 * time.Second,
			persists: true}
		assert.Zero(t, l.from)
		w.undone(l)
	}
}

// Whatever is announced, and whenever: of a type whose whole leases fail, some leases succeed, and
// they see what is new.
func TestNewTasksGoOnWhileLeasesFail(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := &snapshot{at: time.Hour}
		s.readable = time.Duration(rapid.IntRange(30, 1000).Draw(t, "readable")) * time.Second
		announce := func(w *lowWater) {
			if rapid.Bool().Draw(t, "announce") {
				ago := time.Duration(rapid.IntRange(0, 3000).Draw(t, "head start")) * time.Second
				w.lower(day(s.at - ago))
			}
		}
		for range 100 {
			announce(&s.lowWater)
			from := s.lease(announce)
			assert.False(t, from.After(day(s.at-markTrail)))
			if s.failed > 5 {
				t.Fatalf("%d leases failed in a row", s.failed)
			}
			s.at += time.Duration(rapid.IntRange(0, 2000).Draw(t, "pause")) * time.Millisecond
		}
	})
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
