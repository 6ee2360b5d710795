package ledger

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// requireEmptyAfter checks that nothing is counted any more in a ledger of some capacity.
func requireEmptyAfter(t require.TestingT, l *Ledger, capacity int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Equal(t, capacity, l.free)
	require.Zero(t, l.Present())
	require.Zero(t, l.bytes)
	require.Zero(t, l.expected)
	require.Zero(t, l.slow)
	require.Empty(t, l.tenants)
	require.Empty(t, l.endpoints)
	require.Empty(t, l.waiting)
	for key, u := range l.types {
		require.Equal(t, []int{0, 0, 0, 0}, []int{u.inFlight, u.coming, u.leasing, u.bytes}, "%s",
			key)
		require.False(t, u.gone, "%s is forgotten", key)
	}
}

// A task counts from its reservation until it is released, whatever happens to it meanwhile.
func TestTasksInFlight(t *testing.T) {
	t.Parallel()
	b := newBook(100, plentyOfBytes)
	counts := func(inFlight, coming, leasing, bytes int) {
		t.Helper()
		u := b.usage(pipe)
		assert.Equal(t, []int{inFlight, coming, leasing, bytes},
			[]int{u.inFlight, u.coming, u.leasing, u.bytes})
		assert.Equal(t, []int{inFlight, 100 - inFlight, inFlight, bytes},
			[]int{b.InFlight(), b.Free(), b.tenants[pipe.Tenant], b.bytes})
	}
	require.Equal(t, 10, b.Reserve(b.ask(pipe, 10, epoch)))
	counts(10, 10, 10, 0)
	b.Unused(pipe, 3)
	counts(7, 7, 7, 0)
	b.Arrived(pipe, 7, 70)
	counts(7, 0, 7, 70)
	b.Begun(pipe, 7)
	counts(7, 0, 0, 70)
	b.Answered(pipe, 4, 40, 100)
	counts(7, 0, 0, 130)
	require.Equal(t, 2, b.Keep(b.fresh(pipe, 2, epoch)))
	counts(7, 0, 2, 130)
	b.Begun(pipe, 1)
	counts(7, 0, 1, 130)
	b.Release(pipe, 6, 120)
	counts(1, 0, 1, 10)
	b.Begun(pipe, 1)
	b.Release(pipe, 1, 10)
	requireEmptyAfter(t, b.Ledger, 100)
}

// New tasks for which there is no capacity left get some for the first of them.
func TestReserveTakesWhatThereIs(t *testing.T) {
	t.Parallel()
	b := newBook(10, plentyOfBytes)
	assert.Equal(t, 8, b.Reserve(b.fresh(pipe, 100, epoch)))
	assert.Zero(t, b.Reserve(b.fresh(pipe, 100, epoch)))
	assert.Equal(t, 8, b.InFlight())
}

// The limits of the type and of its tenant bound what is in flight.
func TestLimitsBound(t *testing.T) {
	t.Parallel()
	b := newBook(100, plentyOfBytes)
	a := b.ask(pipe, 50, epoch)
	a.Limits.Type = 5
	assert.Equal(t, 5, b.Reserve(a))
	assert.Zero(t, b.Reserve(a))
	a.Limits = Limits{Type: 100, Tenant: 8}
	assert.Equal(t, 3, b.Reserve(a))
	a.Type = other
	assert.Zero(t, b.Reserve(a), "they are the tenant's, of whatever types")
	a.Type = rival
	assert.Equal(t, 8, b.Reserve(a))
	a.Type, a.Limits.Tenant = pipe, 4
	assert.Zero(t, b.Reserve(a), "the limit was lowered meanwhile")
	assert.Equal(t, 4, b.Keep(Ask{Type: pipe, N: 8, Limits: a.Limits, New: true, Now: epoch}))
}

// Why names the bound that keeps the next task from getting capacity.
func TestWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want    asyncflow.WaitReason
		prepare func(*book, *Ask)
	}{
		"nothing":          {"", func(*book, *Ask) {}},
		"the type's limit": {asyncflow.WaitType, func(_ *book, a *Ask) { a.Limits.Type = 2 }},
		"a pause":          {asyncflow.WaitType, func(_ *book, a *Ask) { a.Limits = Limits{} }},
		"the tenant's quota": {asyncflow.WaitConcurrency,
			func(_ *book, a *Ask) { a.Limits.Tenant = 2 }},
		"a full node": {asyncflow.WaitCapacity, func(b *book, _ *Ask) {
			b.fill(append(typesOf("acme", 40), typesOf("rival", 40)...), 1, epoch)
		}},
		"the type's share": {asyncflow.WaitCapacity,
			func(b *book, _ *Ask) { b.Reserve(b.ask(pipe, 10, epoch)) }},
		"the bytes": {asyncflow.WaitCapacity,
			func(b *book, _ *Ask) { b.Arrived(rival, 2, plentyOfBytes) }},
		"one of several endpoints": {asyncflow.WaitCapacity, func(b *book, a *Ask) {
			a.New, a.Endpoints = true, []string{"e", "f"}
			b.Sending("e", 20)
		}},
		"an endpoint, which a lease chooses later": {"", func(b *book, a *Ask) {
			a.Endpoints = []string{"e", "f"}
			b.Sending("e", 20)
		}},
		"others in line": {asyncflow.WaitCapacity,
			func(b *book, a *Ask) { a.New, b.lineFor[pipe] = true, 0 }},
		"others in line, of a lease": {"", func(b *book, _ *Ask) { b.lineFor[pipe] = 0 }},
		"the node's stop": {asyncflow.WaitCapacity, func(b *book, a *Ask) {
			a.New = true
			b.AllowNew(false)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(10, plentyOfBytes)
			require.Equal(t, 2, b.Reserve(b.ask(pipe, 2, epoch)))
			require.Equal(t, 2, b.Reserve(b.ask(rival, 2, epoch)))
			a := b.ask(pipe, 1, epoch)
			c.prepare(b, &a)
			before := b.InFlight()
			assert.Equal(t, c.want, b.Why(a))
			assert.Equal(t, before, b.InFlight(), "it only asks")
			assert.Equal(t, c.want != "", b.Reserve(a) == 0)
		})
	}
}

// A type that is gone is forgotten when nothing of it is in flight any more, in whatever order its
// tasks end.
func TestForget(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*book){
		"unused": func(b *book) { b.Unused(pipe, 2) },
		"in order": func(b *book) {
			b.Arrived(pipe, 2, 20)
			b.Begun(pipe, 2)
			b.Took(pipe, 1, epoch)
			b.Answered(pipe, 2, 20, 0)
			b.Release(pipe, 2, 0)
		},
		"before the leases are known to be committed": func(b *book) {
			b.Arrived(pipe, 2, 20)
			b.Release(pipe, 1, 10)
			b.Release(pipe, 1, 10)
			b.Begun(pipe, 2)
		},
		"with a next stage": func(b *book) {
			b.Arrived(pipe, 2, 20)
			b.Begun(pipe, 2)
			kept := b.Keep(b.fresh(pipe, 2, epoch))
			b.Begun(pipe, kept)
			b.Release(pipe, 2, 20)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(10, plentyOfBytes)
			b.Forget(pipe)
			require.Equal(t, 2, b.Reserve(b.ask(pipe, 2, epoch)))
			b.Forget(pipe)
			require.Contains(t, b.types, pipe)
			end(b)
			requireEmptyAfter(t, b.Ledger, 10)
			require.NotContains(t, b.types, pipe)
		})
	}
	b := newBook(10, plentyOfBytes)
	b.Took(pipe, time.Hour, epoch)
	b.Forget(pipe)
	assert.Zero(t, b.usage(pipe).meanDuration, "another one of the name is another one")
}

// A type is forgotten when nothing was asked for it for a while. It is slow then.
func TestForgetIdle(t *testing.T) {
	t.Parallel()
	b := newBook(10, plentyOfBytes)
	other := store.TypeKey{Tenant: pipe.Tenant, Type: "other"}
	none := func(store.TypeKey) bool { return false }
	b.Took(pipe, 0, epoch)
	require.Equal(t, 1, b.Reserve(b.ask(other, 1, epoch)))
	b.ForgetIdle(none)
	b.ForgetIdle(func(key store.TypeKey) bool { return key == other })
	assert.NotContains(t, b.types, pipe)
	assert.Zero(t, b.quick.Len())
	assert.Contains(t, b.types, other, "it has a task in flight")
	b.Unused(other, 1)
	requireEmptyAfter(t, b.Ledger, 10)
	assert.Empty(t, b.types)
}

// flight is a task in flight in a test.
type flight struct {
	key             store.TypeKey
	bytes           int
	leasing, coming bool
}

// flights are a ledger and what it ought to know.
type flights struct {
	*book
	all  []*flight
	sent map[string]int
}

// Whatever happens to tasks in whatever order, the ledger counts right, never exceeds its capacity,
// and holds nothing when all of them are over.
func TestLedgerBalances(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.SampledFrom([]int{1, 7, 40}).Draw(t, "capacity")
		f := &flights{book: newBook(capacity, 1000), sent: map[string]int{}}
		keys := append(typesOf("acme", 2), typesOf("rival", 2)...)
		aKey := rapid.SampledFrom(keys)
		t.Repeat(map[string]func(*rapid.T){
			"reserve": func(t *rapid.T) { f.reserve(t, aKey.Draw(t, "type")) },
			"unused": func(t *rapid.T) {
				if some := f.some(t,
					func(x *flight) bool { return x.coming && x.leasing }); len(some) > 0 {
					f.Unused(some[0].key, len(some))
					f.drop(some)
				}
			},
			"arrived": func(t *rapid.T) {
				some := f.some(t, func(x *flight) bool { return x.coming })
				size := rapid.IntRange(0, 300).Draw(t, "bytes")
				for _, x := range some {
					x.coming, x.bytes = false, size
				}
				if len(some) > 0 {
					f.Arrived(some[0].key, len(some), size*len(some))
				}
			},
			"begun": func(t *rapid.T) {
				some := f.some(t, func(x *flight) bool { return x.leasing && !x.coming })
				for _, x := range some {
					x.leasing = false
				}
				if len(some) > 0 {
					f.Begun(some[0].key, len(some))
				}
			},
			"answered": func(t *rapid.T) {
				some := f.some(t, func(x *flight) bool { return !x.coming && !x.leasing })
				size, before := rapid.IntRange(0, 300).Draw(t, "bytes"), 0
				for _, x := range some {
					before, x.bytes = before+x.bytes, size
				}
				if len(some) > 0 {
					f.Answered(some[0].key, len(some), before, size*len(some))
				}
			},
			"keep": func(t *rapid.T) {
				some := f.some(t, func(x *flight) bool { return !x.coming && !x.leasing })
				if len(some) == 0 {
					return
				}
				kept := f.Keep(f.fresh(some[0].key, len(some), epoch))
				if kept < 0 || kept > len(some) {
					t.Fatalf("%d of %d are kept", kept, len(some))
				}
				for _, x := range some[:kept] {
					x.leasing = true
				}
			},
			"release": func(t *rapid.T) {
				f.release(f.some(t,
					func(x *flight) bool { return !x.coming }))
			},
			"sending": func(t *rapid.T) {
				e := rapid.SampledFrom([]string{"e", "f"}).Draw(t, "endpoint")
				n := rapid.IntRange(-f.sent[e], 3).Draw(t, "n")
				f.sent[e] += n
				f.Sending(e, n)
			},
			"took": func(t *rapid.T) {
				took := time.Duration(rapid.IntRange(-1, 3).Draw(t, "s")) * time.Second
				f.Took(aKey.Draw(t, "type"), took, epoch)
			},
			"forget": func(t *rapid.T) { f.Forget(aKey.Draw(t, "type")) },
			"forget idle": func(t *rapid.T) {
				f.ForgetIdle(func(store.TypeKey) bool { return rapid.Bool().Draw(t, "gone") })
			},
			"slow down": func(t *rapid.T) {
				now := epoch.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "later")) * quickTime)
				f.Why(Ask{Type: aKey.Draw(t, "type"), N: 1, Now: now})
			},
			"": func(t *rapid.T) { f.check(t, keys) },
		})
		for _, x := range f.all {
			if x.coming {
				f.Unused(x.key, 1)
				continue
			}
			f.Release(x.key, 1, x.bytes)
			if x.leasing { // as where a delivery ends at once
				f.Begun(x.key, 1)
			}
		}
		for e, n := range f.sent {
			f.Sending(e, -n)
		}
		requireEmptyAfter(t, f.Ledger, capacity)
	})
}

// reserve reserves capacity for some tasks of a type.
func (f *flights) reserve(t *rapid.T, key store.TypeKey) {
	a := Ask{Type: key, N: rapid.IntRange(0, f.capacity+1).Draw(t, "n"), Now: epoch,
		New: rapid.Bool().Draw(t, "new"), Limits: Limits{
			Type:   rapid.IntRange(0, f.capacity).Draw(t, "of type"),
			Tenant: rapid.IntRange(0, f.capacity).Draw(t, "of tenant")}}
	if rapid.Bool().Draw(t, "several endpoints") {
		a.Endpoints = []string{"e", "f"}
	}
	why := f.Why(a)
	n := f.Reserve(a)
	if n < 0 || n > a.N || a.N > 0 && (n == 0) != (why != "") {
		t.Fatalf("%d of %d: %q", n, a.N, why)
	}
	for range n {
		f.all = append(f.all, &flight{key: key, leasing: true, coming: true})
	}
	ofType, ofTenant := 0, 0
	for _, x := range f.all {
		if x.key == key {
			ofType++
		}
		if x.key.Tenant == key.Tenant {
			ofTenant++
		}
	}
	if n > 0 && (ofType > a.Limits.Type || ofTenant > a.Limits.Tenant) {
		t.Fatalf("%d of %d, and %d of the tenant's %d", ofType, a.Limits.Type, ofTenant,
			a.Limits.Tenant)
	}
}

// some draws some tasks of one type of which something holds.
func (f *flights) some(t *rapid.T, holds func(*flight) bool) (some []*flight) {
	for _, x := range f.all {
		if holds(x) && (len(some) == 0 || x.key == some[0].key) {
			some = append(some, x)
		}
	}
	return some[:rapid.IntRange(0, len(some)).Draw(t, "how many")]
}

func (f *flights) release(some []*flight) {
	bytes := 0
	for _, x := range some {
		if x.leasing {
			f.Begun(x.key, 1)
		}
		bytes += x.bytes
	}
	if len(some) > 0 {
		f.Release(some[0].key, len(some), bytes)
		f.drop(some)
	}
}

func (f *flights) drop(some []*flight) {
	for _, x := range some {
		for i := range f.all {
			if f.all[i] == x {
				f.all = append(f.all[:i], f.all[i+1:]...)
				break
			}
		}
	}
}

// check compares what the ledger knows with what it ought to.
func (f *flights) check(t *rapid.T, keys []store.TypeKey) {
	want := map[string]int{}
	got := map[string]int{"all": f.InFlight(), "free": f.Free() - f.capacity, "bytes": f.bytes}
	count := func(what string, n int) {
		if n != 0 {
			want[what] += n
		}
	}
	for _, x := range f.all {
		count("free", -1)
		count("all", 1)
		count("bytes", x.bytes)
		count(x.key.Tenant, 1)
		count(fmt.Sprint(x.key, " in flight"), 1)
		count(fmt.Sprint(x.key, " bytes"), x.bytes)
		if x.coming {
			count(fmt.Sprint(x.key, " coming"), 1)
		}
		if x.leasing {
			count(fmt.Sprint(x.key, " leasing"), 1)
		}
	}
	for e, n := range f.sent {
		count(e, n)
	}
	for tenant, n := range f.tenants {
		got[tenant] = n
	}
	for e, n := range f.endpoints {
		got[e] = n
	}
	slow, expected := 0, 0
	for _, key := range keys {
		u := f.types[key]
		if u == nil {
			continue
		}
		got[fmt.Sprint(key, " in flight")] = u.inFlight
		got[fmt.Sprint(key, " bytes")] = u.bytes
		got[fmt.Sprint(key, " coming")] = u.coming
		got[fmt.Sprint(key, " leasing")] = u.leasing
		if u.quickEntry == nil {
			slow += u.inFlight
		}
		expected += int(float64(u.coming) * u.mean())
	}
	for what, n := range got {
		if n == 0 {
			delete(got, what)
		}
	}
	if f.InFlight() > f.capacity || f.slow != slow || f.expected != expected {
		t.Fatalf("%d of %d in flight, %d of %d slow, %d of %d bytes expected", f.InFlight(),
			f.capacity, f.slow, slow, f.expected, expected)
	}
	require.Equal(t, want, got)
}
