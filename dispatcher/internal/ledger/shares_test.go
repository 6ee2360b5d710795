package ledger

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/store"
)

// epoch is the time in tests that need none in particular.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// book is a ledger without a line: new tasks may begin at once.
type book struct {
	*Ledger
	lineFor map[store.TypeKey]time.Duration // types with tasks in line, and for how long
	woken   map[store.TypeKey]int
	waking  sync.Mutex
}

// plentyOfBytes is more than any test reserves.
const plentyOfBytes = 1 << 40

func newBook(capacity, bytes int) *book {
	b := &book{lineFor: map[store.TypeKey]time.Duration{}, woken: map[store.TypeKey]int{}}
	b.Ledger = New(capacity, bytes, func(key store.TypeKey) (bool, time.Duration) {
		busy, is := b.lineFor[key]
		return !is, busy
	}, func(key store.TypeKey) {
		b.waking.Lock()
		defer b.waking.Unlock()
		b.woken[key]++
	})
	b.AllowNew(true)
	return b
}

// ask is a question for capacity for n tasks of a type without limits.
func (b *book) ask(key store.TypeKey, n int, now time.Time) Ask {
	return Ask{Type: key, N: n, Least: n, Limits: b.unlimited(), Now: now}
}

// fresh is ask for new tasks.
func (b *book) fresh(key store.TypeKey, n int, now time.Time) Ask {
	a := b.ask(key, n, now)
	a.New = true
	return a
}

func (b *book) unlimited() Limits { return Limits{Type: b.capacity, Tenant: b.capacity} }

// room returns how many tasks of a type would get capacity.
func (b *book) room(key store.TypeKey, now time.Time) int {
	n := b.Reserve(b.ask(key, b.capacity, now))
	b.Unused(key, n)
	return n
}

// fill makes types reserve capacity, each for up to atOnce tasks at a time, as long as any gets
// more.
func (b *book) fill(keys []store.TypeKey, atOnce int, now time.Time) {
	for more := true; more; {
		more = false
		for _, key := range keys {
			more = b.Reserve(b.ask(key, atOnce, now)) > 0 || more
		}
	}
}

// has returns how many tasks of each type are in flight.
func (b *book) has(keys []store.TypeKey) (has []int) {
	for _, key := range keys {
		has = append(has, b.usage(key).inFlight)
	}
	return has
}

// hasBytes returns how many bytes each type has.
func (b *book) hasBytes(keys []store.TypeKey) (has []int) {
	for _, key := range keys {
		has = append(has, b.usage(key).bytes)
	}
	return has
}

func typesOf(tenant string, n int) []store.TypeKey {
	keys := make([]store.TypeKey, n)
	for i := range keys {
		keys[i] = store.TypeKey{Tenant: tenant, Type: fmt.Sprint(i)}
	}
	return keys
}

var (
	pipe  = store.TypeKey{Tenant: "acme", Type: "pipe"}
	other = store.TypeKey{Tenant: "acme", Type: "other"}
	quick = store.TypeKey{Tenant: "acme", Type: "quick"}
	rival = store.TypeKey{Tenant: "rival", Type: "pipe"}
)

// Types that hang, without a single delivery that ended, leave capacity for another one of their
// tenant: for one task to begin with, and for many when a delivery of it is over.
func TestCapacityBesideTypesThatHang(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ capacity, hanging int }{
		{64, 4}, {128, 6}, {512, 6}, {512, 30}, {1024, 60},
	} {
		t.Run(fmt.Sprintf("%d hang, capacity %d", c.hanging, c.capacity), func(t *testing.T) {
			for _, atOnce := range []int{1, 10, c.capacity} {
				b := newBook(c.capacity, plentyOfBytes)
				hanging := typesOf("acme", c.hanging)
				b.fill(hanging, atOnce, epoch)
				what := fmt.Sprintf("%d types, %d tasks: %v", c.hanging, c.capacity, b.has(hanging))
				assert.LessOrEqual(t, b.InFlight(), c.capacity*4/5+c.hanging, what)
				assert.Equal(t, 1, b.Reserve(b.ask(quick, c.capacity, epoch)), what)
				b.Took(quick, quickTime, epoch)
				assert.GreaterOrEqual(t, b.room(quick, epoch), c.capacity/128, what)
				assert.Zero(t, b.room(quick, epoch.Add(quickTime)),
					"none has ended for a while: %s", what)
			}
		})
	}
}

// A delivery that took long doesn't show that its type is quick.
func TestSlowDeliveriesShowNothing(t *testing.T) {
	t.Parallel()
	b := newBook(128, plentyOfBytes)
	b.fill(typesOf("acme", 6), 1, epoch)
	assert.Equal(t, 1, b.Reserve(b.ask(quick, 10, epoch)))
	b.Took(quick, quickTime+1, epoch)
	assert.Zero(t, b.room(quick, epoch))
	b.Took(quick, quickTime, epoch)
	assert.Positive(t, b.room(quick, epoch))
}

// Types that were quick until a moment ago and then hang all at once leave capacity, too.
func TestCapacityBesideTypesThatBeginToHang(t *testing.T) {
	t.Parallel()
	for _, hanging := range []int{2, 6, 20} {
		t.Run(fmt.Sprintf("%d types hang", hanging), func(t *testing.T) {
			b := newBook(512, plentyOfBytes)
			keys := typesOf("acme", hanging)
			for _, key := range keys {
				b.Took(key, 0, epoch)
			}
			b.fill(keys, 1, epoch)
			what := fmt.Sprint(b.has(keys))
			assert.Positive(t, b.room(quick, epoch), what)
			assert.Positive(t, b.room(rival, epoch), what)
		})
	}
}

// Tasks at the end of a stage keep the capacity that they would get after giving it back: all of
// it, if there is nobody else, and less once others are there.
func TestCapacityOfTasksThatHaveEnded(t *testing.T) {
	t.Parallel()
	for _, capacity := range []int{1, 5, 64, 1024} {
		t.Run(fmt.Sprintf("capacity %d", capacity), func(t *testing.T) {
			b, keys := newBook(capacity, plentyOfBytes), typesOf("acme", 2)
			for _, key := range keys {
				b.Took(key, 0, epoch)
			}
			b.fill(keys[:1], capacity, epoch)
			ended := b.has(keys)[0]
			assert.Equal(t, ended, b.Keep(b.fresh(keys[0], ended, epoch)), "%d tasks", capacity)
			b.fill(keys[1:], capacity, epoch)
			kept := b.Keep(b.fresh(keys[0], ended, epoch))
			b.Release(keys[0], ended, 0)
			assert.Equal(t, b.room(keys[0], epoch), kept)
			if capacity > 5 {
				assert.Less(t, kept, ended, "%d tasks", capacity)
			}
		})
	}
}

// A type alone gets four fifths of the capacity, whether it is quick or not, and those that are
// quick and all want much get the same.
func TestSharesOfTypes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		capacity int
		quick    bool
		want     []int
	}{
		{1, false, []int{1}},
		{2, false, []int{2}},
		{10, false, []int{8}},
		{512, false, []int{410}},
		{512, true, []int{410}},
		{512, true, []int{216, 216}},
		{512, true, []int{75, 75, 75, 74, 74, 74}},
	} {
		t.Run(fmt.Sprintf("capacity %d, quick %v", c.capacity, c.quick), func(t *testing.T) {
			b := newBook(c.capacity, plentyOfBytes)
			keys := typesOf("acme", len(c.want))
			for _, key := range keys {
				if c.quick {
					b.Took(key, 0, epoch)
				}
			}
			b.fill(keys, 1, epoch)
			assert.Equal(t, c.want, b.has(keys))
		})
	}
}

// A tenant with many types gets eight ninths and leaves the rest to others.
func TestSharesOfTenants(t *testing.T) {
	t.Parallel()
	b := newBook(900, plentyOfBytes)
	keys := typesOf("acme", 100)
	for _, key := range append(typesOf("rival", 100), keys...) {
		b.Took(key, 0, epoch)
	}
	b.fill(keys, 1, epoch)
	assert.InDelta(t, 800, b.InFlight(), 1)
	b.fill(typesOf("rival", 100), 1, epoch)
	assert.InDelta(t, 800+89, b.InFlight(), 2, "eight ninths of the rest")
}

// One of several endpoints of a type gets two thirds, and tasks on their way to an endpoint count
// for each of them.
func TestSharesOfEndpoints(t *testing.T) {
	t.Parallel()
	b := newBook(30, plentyOfBytes)
	a := b.fresh(pipe, 30, epoch)
	a.Endpoints = []string{"e1", "e2"}
	assert.Equal(t, 20, b.Reserve(a), "two thirds")
	assert.Zero(t, b.Reserve(a), "they may all go to e1")
	b.Sending("e1", 10)
	b.Sending("e2", 10)
	assert.Equal(t, 4, b.Reserve(a), "two thirds of 10 + 10, rounded up")
	b.Unused(pipe, 4)
	b.Sending("e1", 10)
	b.Sending("e2", -10)
	assert.Zero(t, b.Reserve(a), "e1 has its share")
	a.Endpoints = a.Endpoints[1:]
	assert.Equal(t, 4, b.Reserve(a), "of one endpoint all may be: four fifths of the capacity")

	assert.Equal(t, map[string]int{"e1": 20}, b.SendingTo([]string{"e1", "e2"}))
	b.Sending("e1", -20)
	assert.Empty(t, b.SendingTo([]string{"e1", "e2"}))
	assert.Empty(t, b.endpoints)
}

// A lease with reserved capacity asks whether any endpoint may get all of it.
func TestForAnyEndpoint(t *testing.T) {
	t.Parallel()
	b := newBook(30, plentyOfBytes)
	several := []string{"e1", "e2"}
	n := b.Reserve(b.ask(pipe, 24, epoch))
	assert.Equal(t, 24, n)
	assert.Equal(t, 20, b.ForAnyEndpoint(pipe, several, n))
	assert.Equal(t, 30, b.ForAnyEndpoint(pipe, several[:1], n), "there is but one")
	b.Unused(pipe, 4)
	b.Sending("e1", 20)
	assert.Zero(t, b.ForAnyEndpoint(pipe, several, 0))
	assert.Equal(t, 2, b.Reserve(b.ask(pipe, 2, epoch)))
	assert.Zero(t, max(0, b.ForAnyEndpoint(pipe, several, 2)))
}

// A type alone gets four fifths of the bytes, by the mean of its tasks, and leaves some for others.
func TestSharesOfBytes(t *testing.T) {
	t.Parallel()
	const size, bytes = 20 << 10, 20 * 20 << 10
	b := newBook(1024, bytes)
	assert.Equal(t, bytes*4/5/unknownContext, b.Reserve(b.ask(pipe, 100, epoch)),
		"nobody knows how long they are")
	b.Arrived(pipe, 5, 5*size)
	for n := 1; n > 0; {
		n = b.Reserve(b.ask(pipe, 1, epoch))
		b.Arrived(pipe, n, n*size)
	}
	assert.Equal(t, []int{16 * size}, b.hasBytes([]store.TypeKey{pipe}))
	assert.Equal(t, 1, b.Reserve(b.ask(other, 100, epoch)), "one at least")
	b.Arrived(other, 1, 1)
	assert.Greater(t, b.room(other, epoch), 100, "they are short")
}

// Tasks that are to come count by the mean of their type.
func TestBytesThatAreToCome(t *testing.T) {
	t.Parallel()
	b := newBook(1024, 1000)
	b.Arrived(pipe, b.Reserve(b.ask(pipe, 1, epoch)), 100)
	b.Arrived(other, b.Reserve(b.ask(other, 1, epoch)), 100)
	assert.Equal(t, 6, b.Reserve(b.ask(pipe, 100, epoch)), "4/5 × (100 + 800) / 100 - 1")
	assert.Equal(t, 1, b.Reserve(b.ask(other, 100, epoch)), "4/5 × (100 + 200) / 100 - 1")
	b.Unused(pipe, 6)
	assert.Equal(t, 5, b.room(pipe, epoch), "4/5 × (100 + 700) / 100 - 1")
}

// A task with more bytes than there are goes alone.
func TestATaskAboveTheBytes(t *testing.T) {
	t.Parallel()
	b := newBook(1024, 1000)
	for range 3 {
		assert.Equal(t, 1, b.Reserve(b.ask(pipe, 20, epoch)))
		b.Arrived(pipe, 1, 5000)
		assert.Zero(t, b.Reserve(b.ask(pipe, 20, epoch)))
		assert.Zero(t, b.Reserve(b.ask(other, 20, epoch)), "all is taken")
		b.Release(pipe, 1, 5000)
	}
	assert.Equal(t, 1, b.Reserve(b.ask(other, 20, epoch)))
}

// Outputs count until they are written. The mean of a type rises at once, and falls slowly.
func TestBytesOfOutputs(t *testing.T) {
	t.Parallel()
	const size = 1000
	b := newBook(1024, 20*size)
	for range 16 {
		assert.Positive(t, b.Reserve(b.ask(pipe, 1, epoch)))
		b.Arrived(pipe, 1, 1)
		b.Answered(pipe, 1, 1, size)
	}
	assert.Equal(t, 16*size, b.bytes)
	assert.Zero(t, b.Reserve(b.ask(pipe, 1, epoch)), "it has four fifths")
	assert.InDelta(t, size, b.usage(pipe).mean(), 1)
	b.Answered(pipe, 8, 8*size, 8)
	assert.Equal(t, 8*size+8, b.bytes)
	assert.InDelta(t, size, b.usage(pipe).mean(), 1, "shorter outputs than contexts tell nothing")
	assert.Positive(t, b.Reserve(b.ask(pipe, 1, epoch)))
	b.Arrived(pipe, 1, 0)
	assert.InDelta(t, size*3/4, b.usage(pipe).mean(), 1)
	b.Release(pipe, 17, 8*size+8)
	assert.Zero(t, b.bytes)
}
