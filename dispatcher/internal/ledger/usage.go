package ledger

import (
	"container/list"
	"time"

	"github.com/asyncflow/asyncflow/store"
)

// usage is what the ledger knows of a task type.
type usage struct {
	inFlight int
	coming   int // tasks in flight that haven't Arrived yet
	leasing  int // tasks in flight without a committed lease yet
	bytes    int // of contexts and outputs
	expected int // bytes of the tasks that are coming

	meanBytes    float64       // per task, lately; 0: none came yet
	meanDuration time.Duration // the mean time of a delivery lately
	quick        time.Time     // when a delivery last ended that took no longer than quickTime
	quickEntry   *list.Element // among the quick types; nil: it isn't one
	gone         bool          // the type is deleted: forget it once nothing of it is in flight
	idle         bool          // nothing was asked for it since the last call of ForgetIdle
}

// Took records how long a delivery of a type took, at its end.
func (l *Ledger) Took(key store.TypeKey, took time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.usage(key)
	took = max(took, 1) // perhaps the clock was set back
	if u.meanDuration == 0 {
		u.meanDuration = took
	}
	u.meanDuration += (took - u.meanDuration) / 16
	if took > quickTime {
		return
	}
	u.quick = now
	if u.quickEntry != nil {
		l.quick.MoveToBack(u.quickEntry)
		return
	}
	u.quickEntry = l.quick.PushBack(u)
	l.slow -= u.inFlight
}

// Forget drops the data of a deleted type.
func (l *Ledger) Forget(key store.TypeKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.types[key]; u != nil {
		u.gone = true
		l.tidy(key, u)
	}
}

// ForgetIdle drops the data of deleted types, and of types that had no task in flight and no ask
// since the call before.
func (l *Ledger) ForgetIdle(gone func(store.TypeKey) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, u := range l.types {
		u.gone = u.idle && u.inFlight == 0 || gone(key)
		u.idle = true
		l.tidy(key, u)
	}
}

// tidy drops the data of a deleted or idle type once all its counts are zero. Tasks may end before
// Begun is called for them.
func (l *Ledger) tidy(key store.TypeKey, u *usage) {
	if u.gone && u.inFlight == 0 && u.leasing == 0 {
		l.makeSlow(u)
		delete(l.types, key)
	}
}

// usage returns the data of a type. l.mu is held, as in the functions below.
func (l *Ledger) usage(key store.TypeKey) *usage {
	u := l.types[key]
	if u == nil {
		u = &usage{}
		l.types[key] = u
	}
	u.idle = false
	return u
}

func (l *Ledger) addBytes(u *usage, n int) {
	l.bytes += n
	u.bytes += n
}

// expect counts the bytes of the tasks of a type that are coming. The caller is to change their
// number, or the mean, first.
func (l *Ledger) expect(u *usage) {
	l.expected -= u.expected
	u.expected = int(float64(u.coming) * u.mean())
	l.expected += u.expected
}

// makeSlow removes a type from the quick ones.
func (l *Ledger) makeSlow(u *usage) {
	if u.quickEntry != nil {
		l.quick.Remove(u.quickEntry)
		u.quickEntry = nil
		l.slow += u.inFlight
	}
}

// learn updates the mean bytes per task. The mean falls slowly, since it may rise again.
func (u *usage) learn(bytes, tasks int) {
	mean := max(1, float64(bytes)/float64(tasks))
	if u.meanBytes > mean {
		mean = (3*u.meanBytes + mean) / 4
	}
	u.meanBytes = mean
}
