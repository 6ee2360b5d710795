package agenda

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

const (
	a, b  = "a", "b"
	retry = time.Second
)

func TestAgendaHandsOutByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](time.Now, retry)
		start := time.Now()
		g.Wake(a, start.Add(2*time.Second))
		g.Wake(b, start.Add(time.Second))
		g.Wake(b, start.Add(time.Hour)) // later than what is known: no news
		key, _ := g.Next(t.Context())
		assert.Equal(t, b, key)
		assert.Equal(t, time.Second, time.Since(start))
		key, _ = g.Next(t.Context())
		assert.Equal(t, a, key)
		assert.Equal(t, 2*time.Second, time.Since(start))
	})
}

func TestAgendaIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](time.Now, retry)
		start := time.Now()
		g.Wake(a, start.Add(time.Hour))
		go func() {
			time.Sleep(time.Second)
			g.Wake(b, time.Now())
		}()
		key, _ := g.Next(t.Context())
		assert.Equal(t, b, key)
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// A taken type is with one leaser only. Wake-ups in the meantime aren't lost.
func TestAgendaTakenType(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](time.Now, retry)
		g.Wake(a, time.Now())
		g.Next(t.Context())
		g.Wake(a, time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, ok := g.Next(ctx)
		assert.False(t, ok, "it is taken")
		g.Put(a, time.Time{}, time.Time{})
		key, ok := g.Next(t.Context())
		assert.Equal(t, a, key, "it was woken")
		assert.True(t, ok)
	})
}

func TestAgendaKeepsTheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](time.Now, retry)
		start := time.Now()
		g.Wake(a, start)
		g.Next(t.Context())
		g.Put(a, start, start.Add(10*time.Second))
		g.Wake(a, start)
		g.Next(t.Context())
		assert.Equal(t, 10*time.Second, time.Since(start))
	})
}

func TestAgendaKnowsWhatIsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](time.Now, retry)
		idle := func() bool {
			is, _ := g.Idle(a)
			return is
		}
		assert.False(t, idle(), "not looked at yet")
		g.Wake(a, time.Now())
		assert.False(t, idle())
		_, _ = g.Next(t.Context())
		g.Drained(a)
		assert.False(t, idle(), "somebody is at it")
		g.Put(a, time.Now().Add(time.Second), time.Time{})
		assert.True(t, idle(), "the next is due in a second")
		time.Sleep(time.Second)
		assert.False(t, idle(), "now it is")
		_, _ = g.Next(t.Context())
		g.Put(a, time.Now().Add(time.Second), time.Time{})
		assert.False(t, idle(), "it could not be looked at")

		_, _ = g.Next(t.Context())
		g.Drained(a)
		g.Wake(a, time.Now())
		g.Put(a, time.Time{}, time.Time{})
		assert.False(t, idle(), "something came meanwhile")
		_, _ = g.Next(t.Context())
		g.Drained(a)
		g.Put(a, time.Time{}, time.Time{})
		assert.True(t, idle())
		g.Filling(a)
		assert.False(t, idle(), "something is about to come")
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = g.Next(ctx)
		assert.Equal(t, retry, time.Since(began), "nothing was heard of it")
		g.Drained(a)
		g.Put(a, time.Time{}, time.Time{})
		assert.True(t, idle())
		g.Wake(a, time.Now())
		_, _ = g.Next(t.Context())
		g.Filling(a)
		g.Drained(a)
		g.Put(a, time.Time{}, time.Time{})
		assert.False(t, idle(), "something is about to come that the last look could not see")
		began = time.Now()
		_, _ = g.Next(ctx)
		assert.Equal(t, retry, time.Since(began))
	})
}

// A type that is gone is dropped, unless it is with a leaser.
func TestAgendaForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](time.Now, retry)
		const c = "c"
		for i, key := range []string{a, b, c} {
			g.Wake(key, time.Now().Add(time.Duration(i)))
		}
		_, _ = g.Next(t.Context())
		g.ForgetAll(func(key string) bool { return key != c })
		assert.Len(t, g.entries, 2)
		g.Put(a, time.Time{}, time.Time{})
		key, _ := g.Next(t.Context())
		assert.Equal(t, c, key)
		g.Put(c, time.Time{}, time.Time{})
		g.ForgetAll(func(key string) bool { return key != c })
		assert.Len(t, g.entries, 1)
	})
}

func TestAgendaKnowsHowLongSomethingMayBeDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New[string](time.Now, retry)
		busy := func() time.Duration {
			t.Helper()
			idle, d := g.Idle(a)
			assert.False(t, idle)
			return d
		}
		assert.Greater(t, busy(), time.Hour, "not looked at yet")
		g.Wake(a, time.Now())
		assert.Greater(t, busy(), time.Hour)
		_, _ = g.Next(t.Context())
		assert.Greater(t, busy(), time.Hour)
		g.Drained(a)
		assert.Zero(t, busy(), "nothing is")
		g.Put(a, time.Now().Add(time.Second), time.Time{})
		time.Sleep(3 * time.Second)
		assert.Equal(t, 2*time.Second, busy(), "nobody has looked since it is due")
		_, _ = g.Next(t.Context())
		time.Sleep(time.Second)
		assert.Equal(t, 3*time.Second, busy())
		g.Put(a, time.Now(), time.Time{}) // something was due
		_, _ = g.Next(t.Context())
		assert.Equal(t, 3*time.Second, busy())
		g.Drained(a)
		g.Put(a, time.Time{}, time.Time{})
		g.Wake(a, time.Now().Add(-time.Hour))
		assert.Zero(t, busy(), "it has just come in line, though it is before others")
		_, _ = g.Next(t.Context())
		g.Drained(a)
		g.Put(a, time.Time{}, time.Time{})
		time.Sleep(time.Second)
		g.Filling(a)
		time.Sleep(time.Second)
		g.Filling(a)
		assert.Equal(t, time.Second, busy())
		_, _ = g.Next(t.Context())
		g.Filling(a)
		assert.Equal(t, time.Second, busy(), "it was busy before")
		time.Sleep(time.Second)
		g.Filling(a)
		g.Drained(a)
		assert.Equal(t, time.Second, busy(), "only what came during the look is in line")
	})
}
