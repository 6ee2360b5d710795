package dispatcher

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/store"
)

var (
	a = store.TypeKey{Tenant: "t", Type: "a"}
	b = store.TypeKey{Tenant: "t", Type: "b"}
)

func TestAgendaHandsOutByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda(time.Now)
		start := time.Now()
		g.wake(a, start.Add(2*time.Second))
		g.wake(b, start.Add(time.Second))
		g.wake(b, start.Add(time.Hour)) // later than what is known: no news
		key, _ := g.take(t.Context())
		assert.Equal(t, b, key)
		assert.Equal(t, time.Second, time.Since(start))
		key, _ = g.take(t.Context())
		assert.Equal(t, a, key)
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestAgendaIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda(time.Now)
		start := time.Now()
		g.wake(a, start.Add(time.Hour))
		go func() {
			time.Sleep(time.Second)
			g.wake(b, time.Now())
		}()
		key, _ := g.take(t.Context())
		assert.Equal(t, b, key)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// Only one leaser has a taken type. Wake-ups in the meantime aren't lost.
func TestAgendaTakenType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda(time.Now)
		g.wake(a, time.Now())
		g.take(t.Context())
		g.wake(a, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, ok := g.take(ctx)
		assert.False(t, ok, "it is taken")
		g.put(a, time.Time{}, time.Time{})
		key, ok := g.take(t.Context())
		assert.Equal(t, a, key, "it was woken")
		assert.True(t, ok)
	})
}

func TestAgendaKeepsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda(time.Now)
		start := time.Now()
		g.wake(a, start)
		g.take(t.Context())
		g.put(a, start, start.Add(10*time.Second))
		g.wake(a, start)
		g.take(t.Context())
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestAgendaKnowsWhatIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda(time.Now)
		idle := func() bool {
			is, _ := g.idle(a)
			return is
		}
		assert.False(t, idle(), "not looked at yet")
		g.wake(a, time.Now())
		assert.False(t, idle())
		_, _ = g.take(t.Context())
		g.drained(a)
		assert.False(t, idle(), "somebody is at it")
		g.put(a, time.Now().Add(time.Second), time.Time{})
		assert.True(t, idle(), "the next is due in a second")
		time.Sleep(time.Second)
		assert.False(t, idle(), "now it is")
		_, _ = g.take(t.Context())
		g.put(a, time.Now().Add(time.Second), time.Time{})
		assert.False(t, idle(), "it could not be looked at")

		_, _ = g.take(t.Context())
		g.drained(a)
		g.wake(a, time.Now())
		g.put(a, time.Time{}, time.Time{})
		assert.False(t, idle(), "something came meanwhile")
		_, _ = g.take(t.Context())
		g.drained(a)
		g.put(a, time.Time{}, time.Time{})
		assert.True(t, idle())
		g.filling(a)
		assert.False(t, idle(), "something is about to come")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = g.take(ctx)
		assert.Equal(t, fullLook, time.Since(began), "nothing was heard of it")
		g.drained(a)
		g.put(a, time.Time{}, time.Time{})
		assert.True(t, idle())
		g.wake(a, time.Now())
		_, _ = g.take(t.Context())
		g.filling(a)
		g.drained(a)
		g.put(a, time.Time{}, time.Time{})
		assert.False(t, idle(), "something is about to come that the last look could not see")
		began = time.Now()
		_, _ = g.take(ctx)
		assert.Equal(t, fullLook, time.Since(began))
	})
}

// A type that is gone is dropped, unless a leaser has taken it.
func TestAgendaForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda(time.Now)
		c := store.TypeKey{Tenant: "t", Type: "c"}
		for i, key := range []store.TypeKey{a, b, c} {
			g.wake(key, time.Now().Add(time.Duration(i)))
		}
		_, _ = g.take(t.Context())
		g.forgetAll(func(key store.TypeKey) bool { return key != c })
		assert.Len(t, g.entries, 2)
		g.put(a, time.Time{}, time.Time{})
		key, _ := g.take(t.Context())
		assert.Equal(t, c, key)
		g.put(c, time.Time{}, time.Time{})
		g.forgetAll(func(key store.TypeKey) bool { return key != c })
		assert.Len(t, g.entries, 1)
	})
}

func TestAgendaKnowsHowLongSomethingMayBeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newAgenda(time.Now)
		busy := func() time.Duration {
			t.Helper()
			idle, d := g.idle(a)
			assert.False(t, idle)
			return d
		}
		assert.Greater(t, busy(), time.Hour, "not looked at yet")
		g.wake(a, time.Now())
		assert.Greater(t, busy(), time.Hour)
		_, _ = g.take(t.Context())
		assert.Greater(t, busy(), time.Hour)
		g.drained(a)
		assert.Zero(t, busy(), "nothing is")
		g.put(a, time.Now().Add(time.Second), time.Time{})
		time.Sleep(3 * time.Second)
		assert.Equal(t, 2*time.Second, busy(), "nobody has looked since it is due")
		_, _ = g.take(t.Context())
		time.Sleep(time.Second)
		assert.Equal(t, 3*time.Second, busy())
		g.put(a, time.Now(), time.Time{}) // something was due
		_, _ = g.take(t.Context())
		assert.Equal(t, 3*time.Second, busy())
		g.drained(a)
		g.put(a, time.Time{}, time.Time{})
		g.wake(a, time.Now().Add(-time.Hour))
		assert.Zero(t, busy(), "it has just come in line, though it is before others")
		_, _ = g.take(t.Context())
		g.drained(a)
		g.put(a, time.Time{}, time.Time{})
		time.Sleep(time.Second)
		g.filling(a)
		time.Sleep(time.Second)
		g.filling(a)
		assert.Equal(t, time.Second, busy())
		_, _ = g.take(t.Context())
		g.filling(a)
		assert.Equal(t, time.Second, busy(), "it was busy before")
		time.Sleep(time.Second)
		g.filling(a)
		g.drained(a)
		assert.Equal(t, time.Second, busy(), "only what came during the look is in line")
	})
}
