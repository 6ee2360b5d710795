package ledger

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// inBubble runs a test of a ledger in a bubble with a clock of its own.
func inBubble(t *testing.T, capacity int, test func(*testing.T, *book)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newBook(capacity, plentyOfBytes)) })
}

// waits starts Await, and returns where its answer comes.
func (b *book) waits(ctx context.Context, a Ask, patience time.Duration) <-chan int {
	got := make(chan int, 1)
	go func() { got <- b.Await(ctx, a, patience) }()
	synctest.Wait()
	return got
}

// none says that an answer hasn't come.
const none = -1

// soFar returns what came of an Await.
func soFar(got <-chan int) int {
	synctest.Wait()
	select {
	case n := <-got:
		return n
	default:
		return none
	}
}

// New tasks wait for tasks in flight of their type to end, in the order in which they came. They
// are granted capacity as soon as some is given back.
func TestAwaitInOrder(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *book) {
		require.Equal(t, 1, b.Reserve(b.fresh(pipe, 1, epoch)))
		var all []<-chan int
		for range 4 {
			all = append(all, b.waits(t.Context(), b.fresh(pipe, 1, epoch), time.Second))
		}
		for i := range all {
			for _, got := range all[i:] {
				require.Equal(t, none, soFar(got))
			}
			b.Release(pipe, 1, 0)
			require.Equal(t, 1, soFar(all[i]))
		}
		require.Equal(t, 1, b.InFlight())
		require.Empty(t, b.waiting)
	})
}

// New tasks wait, also with capacity left, behind others of their type that came before them.
func TestAwaitDoesntOvertake(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		require.Equal(t, 7, b.Reserve(b.fresh(pipe, 7, epoch)))
		many := b.waits(t.Context(), b.fresh(pipe, 6, epoch), time.Second)
		one := b.waits(t.Context(), b.fresh(pipe, 1, epoch), time.Second)
		require.Equal(t, none, soFar(one), "there is capacity for it, but it came later")
		require.Zero(t, b.Reserve(b.fresh(pipe, 1, epoch)), "nor does one that can't wait")
		require.Equal(t, 1, b.Reserve(b.fresh(rival, 1, epoch)), "it's no business of other types")
		b.Release(pipe, 6, 0)
		require.Equal(t, 6, soFar(many))
		require.Equal(t, none, soFar(one), "the type has its share")
		b.Release(pipe, 1, 0)
		require.Equal(t, 1, soFar(one))
	})
}

// Tasks in line came before all new ones: a lease doesn't wait behind these.
func TestLeasesDontWaitBehindNewTasks(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		require.Equal(t, 8, b.Reserve(b.fresh(pipe, 8, epoch)))
		fresh := b.waits(t.Context(), b.fresh(pipe, 8, epoch), time.Second)
		b.Release(pipe, 2, 0)
		lease := b.ask(pipe, 5, epoch)
		lease.Least = 4
		leased := b.waits(t.Context(), lease, time.Second)
		require.Equal(t, none, soFar(leased))
		b.Release(pipe, 2, 0)
		require.Equal(t, 4, soFar(leased))
		require.Equal(t, none, soFar(fresh))
		require.Equal(t, 0, b.Reserve(b.ask(pipe, 1, epoch)))
		b.Release(pipe, 8, 0)
		require.Equal(t, 8, soFar(fresh))
	})
}

// When the time is over, new tasks take what there is. The turn is then at those behind them.
func TestAwaitTimesOut(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		require.Equal(t, 6, b.Reserve(b.fresh(pipe, 6, epoch)))
		began := time.Now()
		many := b.waits(t.Context(), b.fresh(pipe, 8, epoch), 100*time.Millisecond)
		limited := b.fresh(pipe, 1, epoch)
		one := b.waits(t.Context(), limited, time.Second)
		require.Equal(t, 2, <-many)
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Equal(t, none, soFar(one))
		b.Release(pipe, 1, 0)
		require.Equal(t, 1, soFar(one))
		require.Empty(t, b.waiting)
	})
}

// One that gives up with nothing makes way for those behind it.
func TestAwaitGivesWay(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		require.Equal(t, 4, b.Reserve(b.fresh(pipe, 4, epoch)))
		few := b.fresh(pipe, 4, epoch)
		few.Limits.Tenant = 4 // all of its tenant
		gives := b.waits(t.Context(), few, 100*time.Millisecond)
		behind := b.waits(t.Context(), b.fresh(pipe, 4, epoch), time.Second)
		require.Equal(t, none, soFar(behind))
		require.Zero(t, <-gives)
		require.Equal(t, 4, soFar(behind))
	})
}

// So it is when the caller goes away.
func TestAwaitEndsWithItsContext(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *book) {
		require.Equal(t, 1, b.Reserve(b.fresh(pipe, 1, epoch)))
		ctx, cancel := context.WithCancel(t.Context())
		got := b.waits(ctx, b.fresh(pipe, 1, epoch), time.Hour)
		require.Equal(t, none, soFar(got))
		cancel()
		require.Zero(t, soFar(got))
		require.Empty(t, b.waiting)
	})
}

// When capacity comes at the moment in which the time is over, none is lost, and none is taken
// twice.
func TestAwaitIsGrantedAsItTimesOut(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *book) {
		counts := map[int]int{}
		for range 1000 {
			require.Equal(t, 1, b.Reserve(b.fresh(pipe, 1, epoch)))
			got := make(chan int)
			go func() { got <- b.Await(t.Context(), b.fresh(pipe, 1, epoch), time.Millisecond) }()
			time.Sleep(time.Millisecond)
			b.Unused(pipe, 1)
			n := <-got
			counts[n]++
			require.Equal(t, n, b.InFlight())
			require.Empty(t, b.waiting)
			b.Unused(pipe, n)
		}
		require.Positive(t, counts[0], "both happen")
		require.Positive(t, counts[1])
		requireEmptyAfter(t, b.Ledger, 1)
	})
}

// However many ask, wait, give up and give back at once, there is never more in flight than there
// may be, and nothing is lost.
func TestManyAwaitAtOnce(t *testing.T) {
	t.Parallel()
	const capacity, workers, rounds = 20, 16, 300
	l := New(capacity, 1<<20, func(store.TypeKey) (bool, time.Duration) { return true, 0 },
		func(store.TypeKey) {})
	l.AllowNew(true)
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			key := []store.TypeKey{pipe, other, rival}[worker%3]
			for i := range rounds {
				n := 1 + (worker+i)%5
				a := Ask{Type: key, N: n, Least: n, New: worker%2 == 0, Now: epoch,
					Limits: Limits{Type: capacity, Tenant: capacity}}
				ctx, cancel := context.WithTimeout(t.Context(),
					time.Duration(i%3)*100*time.Microsecond)
				n = l.Await(ctx, a, time.Duration((worker+i)%4)*100*time.Microsecond)
				cancel()
				if l.InFlight() > capacity {
					t.Errorf("%d in flight", l.InFlight())
				}
				if i%2 == 0 {
					l.Unused(key, n)
					continue
				}
				l.Arrived(key, n, 10*n)
				l.Begun(key, n)
				if i%3 == 0 {
					l.Begun(key, l.Keep(Ask{Type: key, N: n, Limits: a.Limits, New: true,
						Now: epoch}))
				}
				l.Release(key, n, 10*n)
			}
		})
	}
	all.Wait()
	l.AwaitEmpty()
	requireEmptyAfter(t, l, capacity)
}

// Who waits, and who doesn't: only where what is lacking comes back soon.
func TestWhoWaits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(*book, *Ask)
		waits   bool
	}{
		"all of it": {func(*book, *Ask) {}, true},
		"more than the type may have": {func(_ *book, a *Ask) {
			a.N, a.Least = 9, 9
		}, false},
		"more than the tenant may have": {func(_ *book, a *Ask) {
			a.Limits.Tenant = 7
		}, false},
		"as much as the tenant may have": {func(_ *book, a *Ask) {
			a.Limits.Tenant = 8
		}, true},
		"more than one of several endpoints may have": {func(_ *book, a *Ask) {
			a.Endpoints = []string{"e", "f"}
		}, false},
		"as much as one of them may have": {func(_ *book, a *Ask) {
			a.N, a.Least, a.Endpoints = 7, 7, []string{"e", "f"}
		}, true},
		"a type that is ramped up": {func(_ *book, a *Ask) {
			a.Limits.Type = 9
		}, false},
		"a paused type": {func(_ *book, a *Ask) {
			a.Limits.Type = 0
		}, false},
		"deliveries that take long": {func(b *book, a *Ask) {
			b.Took(pipe, AdmitPatience+1, a.Now)
		}, false},
		"deliveries that don't": {func(b *book, a *Ask) {
			b.Took(pipe, AdmitPatience, a.Now)
		}, true},
		"more bytes than there may be": {func(b *book, _ *Ask) {
			b.mostBytes = 9 * unknownContext
		}, false},
		"as many bytes as there may be": {func(b *book, _ *Ask) {
			b.mostBytes = 10 * unknownContext
		}, true},
		"others have the capacity": {func(b *book, _ *Ask) {
			b.Took(rival, 0, epoch)
			b.Reserve(b.ask(rival, 2, epoch))
		}, false},
		"the node stops": {func(b *book, _ *Ask) { b.AllowNew(false) }, false},
		"a line for a moment": {func(b *book, _ *Ask) { b.lineFor[pipe] = AdmitPatience - 1 },
			true},
		"a line for a while": {func(b *book, _ *Ask) { b.lineFor[pipe] = AdmitPatience }, false},
		"no patience":        {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 10, func(t *testing.T, b *book) {
				require.Equal(t, 8, b.Reserve(b.fresh(pipe, 8, epoch)))
				a, patience := b.fresh(pipe, 8, epoch), time.Second
				if c.prepare == nil {
					patience = 0
				} else {
					c.prepare(b, &a)
				}
				began := time.Now()
				b.Unused(pipe, b.Await(t.Context(), a, patience))
				require.Equal(t, c.waits, time.Since(began) > 0)
			})
		})
	}
}

// For the end of a line new tasks wait only while there is much to do for their type: the line is
// as quick.
func TestIdleTypesDontWaitForALine(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		b.lineFor[pipe] = 0
		waits := func(a Ask) bool {
			began := time.Now()
			b.Unused(pipe, b.Await(t.Context(), a, time.Second))
			return time.Since(began) > 0
		}
		require.False(t, waits(b.fresh(pipe, 1, epoch)))
		b.Took(pipe, time.Millisecond, epoch)
		require.True(t, waits(b.fresh(pipe, 1, epoch.Add(AdmitPatience-1))), "one has just ended")
		require.False(t, waits(b.fresh(pipe, 1, epoch.Add(AdmitPatience))))
		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		require.True(t, waits(b.fresh(pipe, 1, epoch.Add(AdmitPatience))), "one is in flight")
	})
}

// A line keeps new tasks, and leaves leases alone. At its end the waiting ones are served.
func TestLines(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		b.lineFor[pipe] = 0
		require.Zero(t, b.Reserve(b.fresh(pipe, 1, epoch)))
		require.Equal(t, 1, b.Reserve(b.fresh(rival, 1, epoch)), "it is no line of theirs")
		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		require.Equal(t, 1, b.Await(t.Context(), b.ask(pipe, 1, epoch), time.Hour))
		require.Zero(t, b.Keep(b.fresh(pipe, 2, epoch)))

		some := b.waits(t.Context(), b.fresh(pipe, 2, epoch), time.Second)
		others := b.waits(t.Context(), b.fresh(pipe, 7, epoch), time.Second)
		b.Release(rival, 1, 0)
		require.Equal(t, none, soFar(some))
		delete(b.lineFor, pipe)
		b.Serve()
		require.Equal(t, 2, soFar(some))
		require.Equal(t, none, soFar(others), "they wait for the others' capacity")
		b.Release(pipe, 3, 0)
		require.Equal(t, 7, soFar(others))
	})
}

// New tasks that wait for the end of a line take what there is when there won't be more.
func TestAfterALineThereIsNoMoreToWaitFor(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		b.lineFor[pipe] = 0
		many := b.waits(t.Context(), b.fresh(pipe, 20, epoch), time.Second)
		behind := b.waits(t.Context(), b.fresh(pipe, 1, epoch), time.Second)
		require.Equal(t, none, soFar(many))
		delete(b.lineFor, pipe)
		b.Serve()
		require.Equal(t, 7, soFar(many), "all that the type may have")
		require.Equal(t, none, soFar(behind))
		b.lineFor[pipe] = AdmitPatience
		b.Serve()
		require.Zero(t, soFar(behind), "the line takes long")
	})
}

// A node that stops admits no new tasks, also none that wait already, but leases what it may.
func TestAdmissionShut(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		require.Equal(t, 8, b.Reserve(b.fresh(pipe, 8, epoch)))
		waits := b.waits(t.Context(), b.fresh(pipe, 8, epoch), time.Second)
		b.AllowNew(false)
		b.Release(pipe, 8, 0)
		require.Zero(t, soFar(waits))
		require.Zero(t, b.Reserve(b.fresh(pipe, 1, epoch)))
		require.Zero(t, b.Await(t.Context(), b.fresh(pipe, 1, epoch), time.Hour))
		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		b.AllowNew(true)
		require.Equal(t, 1, b.Reserve(b.fresh(pipe, 1, epoch)))
	})
	l := New(1, plentyOfBytes, newBook(1, 1).line, nil)
	a := Ask{Type: pipe, N: 1, Limits: Limits{Type: 1, Tenant: 1}, New: true}
	assert.Zero(t, l.Reserve(a), "it is shut at first")
}

// A lease waits for more than a little capacity, but not long, and not for any at all: its type is
// woken.
func TestLeasesLinger(t *testing.T) {
	const leaseLinger = 2 * time.Millisecond
	inBubble(t, 80, func(t *testing.T, b *book) {
		lease := func(most, least int) Ask {
			a := b.ask(pipe, most, epoch)
			a.Least = least
			return a
		}
		began := time.Now()
		require.Equal(t, 60, b.Await(t.Context(), lease(60, 10), leaseLinger))
		require.Equal(t, 4, b.Await(t.Context(), lease(60, 10), leaseLinger))
		require.Equal(t, leaseLinger, time.Since(began), "a few are worth a short wait for more")
		require.Zero(t, b.Await(t.Context(), lease(60, 10), leaseLinger))
		require.Equal(t, leaseLinger, time.Since(began))
		require.Empty(t, b.woken)
		b.Unused(pipe, 3)
		require.Equal(t, 1, b.woken[pipe])
		got := b.waits(t.Context(), lease(60, 10), leaseLinger)
		b.Unused(pipe, 6)
		require.Equal(t, none, soFar(got))
		b.Unused(pipe, 1)
		require.Equal(t, 10, soFar(got))
		require.Equal(t, leaseLinger, time.Since(began))
	})
}

// A type that got no capacity is woken once, when some is given back.
func TestRefusedTypesAreWoken(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *book) {
		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		refuse := func() {
			require.Zero(t, b.Await(t.Context(), b.ask(other, 1, epoch), time.Second))
		}
		refuse()
		b.Begun(pipe, 1)
		b.Arrived(pipe, 1, 100)
		b.Answered(pipe, 1, 100, 10)
		b.Release(pipe, 0, 0)
		b.Unused(pipe, 0)
		require.Empty(t, b.woken, "nothing is given back")
		b.Release(pipe, 0, 5)
		require.Equal(t, 1, b.woken[other], "bytes are")
		refuse()
		b.Release(pipe, 1, 5)
		require.Equal(t, 2, b.woken[other])
		for range 2 {
			require.Equal(t, 1, b.Await(t.Context(), b.ask(other, 1, epoch), time.Second))
			b.Unused(other, 1)
		}
		require.Equal(t, 2, b.woken[other], "it doesn't wait any more")
		require.Zero(t, b.woken[pipe])

		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		require.Zero(t, b.Await(t.Context(), b.fresh(other, 1, epoch), 0))
		b.Unused(pipe, 1)
		require.Equal(t, 2, b.woken[other], "new tasks go in line, which wakes their type")
	})
}

// Those who wait come before types that were refused.
func TestThoseWhoWaitComeFirst(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *book) {
		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		require.Zero(t, b.Await(t.Context(), b.ask(other, 1, epoch), time.Second))
		got := b.waits(t.Context(), b.fresh(pipe, 1, epoch), time.Second)
		inFlight := none
		b.wake = func(_ store.TypeKey) { inFlight = b.InFlight() }
		b.Release(pipe, 1, 0)
		require.Equal(t, 1, inFlight, "the ledger isn't locked, and the capacity is granted")
		require.Equal(t, 1, soFar(got))
	})
}

// Of many types that wait all get their turn.
func TestManyTypesWait(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, b *book) {
		keys := typesOf("acme", 3*serveMost)
		require.Equal(t, 1, b.Reserve(b.ask(keys[0], 1, epoch)))
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i, key := range keys {
			b.Took(key, 0, epoch)
			all.Go(func() {
				n := b.Await(t.Context(), b.ask(key, 1, epoch), time.Hour)
				for n == 0 { // as an agenda does
					time.Sleep(time.Microsecond)
					n = b.Await(t.Context(), b.ask(key, 1, epoch), time.Hour)
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				b.Release(key, n, 0)
			})
		}
		b.Release(keys[0], 1, 0)
		all.Wait()
		slices.Sort(order)
		require.Len(t, slices.Compact(order), len(keys))
		require.Zero(t, b.InFlight())
	})
}

// AwaitLeases waits until the leases of a type are committed, or given up. It leaves other types
// alone.
func TestAwaitLeases(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*book){
		"committed": func(b *book) { b.Begun(pipe, 2) },
		"given up":  func(b *book) { b.Unused(pipe, 2) },
		"both": func(b *book) {
			b.Begun(pipe, 1)
			b.Unused(pipe, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 10, func(t *testing.T, b *book) {
				require.Equal(t, 2, b.Reserve(b.ask(pipe, 2, epoch)))
				require.Equal(t, 2, b.Reserve(b.ask(other, 2, epoch)))
				b.Begun(other, 1)
				awaits := func(ctx context.Context) (over func() bool) {
					done := make(chan struct{})
					go func() {
						b.AwaitLeases(ctx, pipe)
						close(done)
					}()
					return func() bool {
						synctest.Wait()
						select {
						case <-done:
							return true
						default:
							return false
						}
					}
				}
				first, second := awaits(t.Context()), awaits(t.Context())
				ctx, cancel := context.WithCancel(t.Context())
				impatient := awaits(ctx)
				require.False(t, first() || second() || impatient())
				cancel()
				require.True(t, impatient())
				b.Begun(other, 1)
				require.False(t, first() || second(), "those of another type are")
				end(b)
				require.True(t, first() && second())
				b.AwaitLeases(t.Context(), rival)
				require.NotContains(t, b.types, rival)
			})
		})
	}
}

// The leases of tasks that keep their capacity are waited for, too.
func TestAwaitLeasesOfTasksThatGoOn(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		require.Equal(t, 1, b.Reserve(b.ask(pipe, 1, epoch)))
		b.Arrived(pipe, 1, 1)
		b.Begun(pipe, 1)
		b.AwaitLeases(t.Context(), pipe)
		require.Equal(t, 1, b.Keep(b.fresh(pipe, 1, epoch)))
		time.AfterFunc(time.Second, func() { b.Begun(pipe, 1) })
		began := time.Now()
		b.AwaitLeases(t.Context(), pipe)
		require.Equal(t, time.Second, time.Since(began))
	})
}

// AwaitEmpty waits until nothing is in flight, whatever of it is committed.
func TestAwaitEmpty(t *testing.T) {
	inBubble(t, 10, func(t *testing.T, b *book) {
		b.AwaitEmpty()
		require.Equal(t, 2, b.Reserve(b.ask(pipe, 2, epoch)))
		require.Equal(t, 1, b.Reserve(b.ask(rival, 1, epoch)))
		b.Begun(pipe, 2)
		time.AfterFunc(1*time.Second, func() { b.Release(pipe, 1, 0) })
		time.AfterFunc(2*time.Second, func() { b.Unused(rival, 1) })
		time.AfterFunc(3*time.Second, func() { b.Release(pipe, 1, 0) })
		began := time.Now()
		b.AwaitEmpty()
		require.Equal(t, 3*time.Second, time.Since(began))
	})
}
