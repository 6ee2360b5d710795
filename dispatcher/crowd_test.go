package dispatcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/store"
)

// crowded is a dispatcher that only counts slots.
func crowded(slots int) *Dispatcher {
	return &Dispatcher{cfg: Config{Concurrency: slots}, held: newHeld(), slots: newSlots(slots, func(store.TypeKey) {})}
}

// lease takes up to n slots for a type, as a leaser does, and returns how many.
func (d *Dispatcher) leaseSlots(key store.TypeKey, n int, now time.Time) int {
	n, _ = d.slots.tryTake(min(n, d.fair(key, 0, 0, now)), 0)
	d.held.add(key, n)
	return n
}

func typesOf(tenant string, n int) []store.TypeKey {
	keys := make([]store.TypeKey, n)
	for i := range keys {
		keys[i] = store.TypeKey{Tenant: tenant, Type: fmt.Sprint(i)}
	}
	return keys
}

// crowd has types take slots, each up to so many at once, as long as any may have more.
func (d *Dispatcher) fill(keys []store.TypeKey, atOnce int, now time.Time) {
	for more := true; more; {
		more = false
		for _, key := range keys {
			more = d.leaseSlots(key, atOnce, now) > 0 || more
		}
	}
}

func (d *Dispatcher) counts(keys []store.TypeKey) (has []int) {
	for _, key := range keys {
		n, _ := d.held.count(key)
		has = append(has, n)
	}
	return has
}

// Types that hang, of which none has ever come back, leave room for another one of their
// tenant: for one task to begin with, and for many when that has come back.
func TestRoomBesideTypesThatHang(t *testing.T) {
	t.Parallel()
	now := time.Now()
	quick := store.TypeKey{Tenant: "acme", Type: "quick"}
	for _, c := range []struct{ slots, hanging int }{{64, 4}, {128, 6}, {512, 6}, {512, 30}, {1024, 60}} {
		for _, atOnce := range []int{1, 10, c.slots} {
			d := crowded(c.slots)
			hanging := typesOf("acme", c.hanging)
			d.fill(hanging, atOnce, now)
			what := fmt.Sprintf("%d types, %d slots: %v", c.hanging, c.slots, d.counts(hanging))
			assert.LessOrEqual(t, c.slots-d.slots.rest(), c.slots*4/5+c.hanging, what)
			assert.Equal(t, 1, d.leaseSlots(quick, c.slots, now), what)
			d.held.ended(quick, quickTime, now)
			assert.GreaterOrEqual(t, d.fair(quick, 0, 0, now), c.slots/128, what)
			assert.Zero(t, d.fair(quick, 0, 0, now.Add(quickTime)), "it has not come back for a while: %s", what)
		}
	}
}

// Types that were quick until a moment ago and then hang all at once leave room, too.
func TestRoomBesideTypesThatBeginToHang(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, hanging := range []int{2, 6, 20} {
		d := crowded(512)
		keys := typesOf("acme", hanging)
		for _, key := range keys {
			d.held.ended(key, 0, now)
		}
		d.fill(keys, 1, now)
		what := fmt.Sprint(d.counts(keys))
		assert.Positive(t, d.fair(store.TypeKey{Tenant: "acme", Type: "quick"}, 0, 0, now), what)
		assert.Positive(t, d.fair(store.TypeKey{Tenant: "other", Type: "quick"}, 0, 0, now), what)
	}
}

// Tasks that have ended leave their type the room that it would have if they had given it
// back: all of it, if there is nobody else, and less once others have come.
func TestRoomOfTasksThatHaveEnded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, slots := range []int{1, 5, 64, 1024} {
		d, keys := crowded(slots), typesOf("acme", 2)
		for _, key := range keys {
			d.held.ended(key, 0, now)
		}
		d.fill(keys[:1], slots, now)
		ended := d.counts(keys)[0]
		assert.Equal(t, ended, d.fair(keys[0], 0, ended, now), "%d slots", slots)
		d.fill(keys[1:], slots, now)
		room := d.fair(keys[0], 0, ended, now)
		d.slots.give(ended)
		d.held.add(keys[0], -ended)
		assert.Equal(t, d.fair(keys[0], 0, 0, now), room)
		if slots > 5 {
			assert.Less(t, room, ended, "%d slots", slots)
		}
	}
}

// A type alone has four fifths of the slots, whether it is quick or not, and those that are
// quick and all want many get the same.
func TestSharesOfTypes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		slots int
		quick bool
		want  []int
	}{
		{1, false, []int{1}},
		{2, false, []int{2}},
		{10, false, []int{8}},
		{512, false, []int{410}},
		{512, true, []int{410}},
		{512, true, []int{216, 216}},
		{512, true, []int{75, 75, 75, 74, 74, 74}},
	} {
		d := crowded(c.slots)
		keys := typesOf("acme", len(c.want))
		for _, key := range keys {
			if c.quick {
				d.held.ended(key, 0, now)
			}
		}
		d.fill(keys, 1, now)
		assert.Equal(t, c.want, d.counts(keys))
	}
}
