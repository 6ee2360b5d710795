package batch

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// batched adds items of some bytes each to a batcher of one writer, at once. It returns the sizes
// of its batches in the order in which they began, and how many were written at a time at most.
// Each write takes 10 ms.
func batched(t *testing.T, items ...int) (batches [][]int, most int) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan []int, len(items))
		under, peak := make(chan int, 1), 0
		under <- 0
		b := New(t.Context(), func(_ context.Context, _ string, batch []int) {
			n := <-under + 1
			peak = max(peak, n)
			under <- n
			begun <- batch
			time.Sleep(10 * time.Millisecond)
			under <- <-under - 1
		})
		b.Size = func(bytes int) int { return bytes }
		b.Add("report", items...)
		b.Drain()
		close(begun)
		for batch := range begun {
			batches = append(batches, batch)
		}
		most = peak
	})
	return batches, most
}

func TestBatchesOfLongItems(t *testing.T) {
	for _, c := range []struct {
		name          string
		items         []int
		batches, most int
	}{
		{"short ones one batch at a time", slices.Repeat([]int{200}, 2_000), 4, 1},
		{"long ones by bytes, several at a time", slices.Repeat([]int{100 << 10}, 40), 4, 3},
		{"some that are longer than a batch", []int{2 << 20, 200, 3 << 20}, 3, 3},
		{"short ones after long ones",
			append(slices.Repeat([]int{1 << 20}, 2), slices.Repeat([]int{10}, 600)...), 4, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			batches, most := batched(t, c.items...)
			if len(batches) != c.batches || most != c.most {
				t.Errorf("%d batches, %d at a time; want %d, %d", len(batches), most, c.batches,
					c.most)
			}
			n := 0
			for _, batch := range batches {
				n += len(batch)
				if sum := sumOf(batch); len(batch) > 1 && sum > MaxBytes {
					t.Errorf("a batch of %d items has %d bytes", len(batch), sum)
				}
			}
			if n != len(c.items) {
				t.Errorf("%d items were written; want %d", n, len(c.items))
			}
		})
	}
}

// lingering is a batcher whose items carry their linger. It records the begin and the items of each
// batch. Each write takes a millisecond.
type lingering struct {
	*Batcher[string, time.Duration]
	start   time.Time
	noting  sync.Mutex
	began   []time.Duration
	batches []int
}

func newLingering(t *testing.T) *lingering {
	l := &lingering{start: time.Now()}
	l.Batcher = New(t.Context(), func(_ context.Context, _ string, batch []time.Duration) {
		l.noting.Lock()
		l.began, l.batches = append(l.began, time.Since(l.start)), append(l.batches, len(batch))
		l.noting.Unlock()
		time.Sleep(time.Millisecond)
	})
	l.Linger = func(d time.Duration) time.Duration { return d }
	return l
}

// An item on its own is written at once; under load batches are as far apart as items linger.
func TestBatchesLinger(t *testing.T) {
	const linger = 3 * time.Millisecond
	for perMS, want := range map[int]int{1: 100, 8: 100, 400: 240} { // those of 400 fill up
		t.Run(fmt.Sprintf("%d per ms", perMS), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLingering(t)
				for range 300 {
					l.Add("report", slices.Repeat([]time.Duration{linger}, perMS)...)
					time.Sleep(time.Millisecond)
				}
				l.Drain()
				assert.Zero(t, l.began[0], "the first one waits for none")
				assert.InDelta(t, want, len(l.batches), 5, "%d per ms", perMS)
				sum := 0
				for _, n := range l.batches {
					sum += n
					assert.LessOrEqual(t, n, MaxItems)
				}
				assert.Equal(t, 300*perMS, sum)
			})
		})
	}
}

// The most urgent item of a batch sets how long the batch lingers after the begin of the last one.
// All waiting items go with it.
func TestTheMostUrgentItemDecides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLingering(t)
		l.Add("report", time.Millisecond)
		time.Sleep(time.Millisecond / 2)
		l.Add("report", 20*time.Millisecond, 10*time.Millisecond)
		time.Sleep(time.Millisecond)
		l.Add("report", 5*time.Millisecond)
		time.Sleep(time.Millisecond)
		l.Add("report", 30*time.Millisecond)
		l.Drain()
		assert.Equal(t, []time.Duration{0, 5 * time.Millisecond}, l.began)
		assert.Equal(t, []int{1, 4}, l.batches)
		time.Sleep(time.Second)
		l.Add("report", 20*time.Millisecond)
		l.Drain()
		assert.Equal(t, time.Second+6*time.Millisecond, l.began[2], "it comes alone")
	})
}

// However many keys get items now and then, few queues are kept.
func TestBatcherDropsIdleQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLingering(t)
		for i := range 10 * tidyLeast {
			l.Add(strconv.Itoa(i), 0)
			if i == 5*tidyLeast {
				assert.Len(t, l.queues, 5*tidyLeast+1, "none is idle yet")
			}
		}
		time.Sleep(2 * tidyAfter)
		for i := range 20 * tidyLeast {
			l.Add(strconv.Itoa(-i), 0)
			time.Sleep(2 * tidyAfter)
		}
		assert.LessOrEqual(t, len(l.queues), tidyLeast)
	})
}

func sumOf(items []int) (sum int) {
	for _, n := range items {
		sum += n
	}
	return sum
}

// Tenants take turns: one that floods a queue delays itself.
func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]string
		b := New(t.Context(), func(_ context.Context, _ string, batch []string) {
			batches = append(batches, batch)
			time.Sleep(10 * time.Millisecond)
		})
		b.Tenant = func(item string) string { return item }
		b.Add("home", slices.Repeat([]string{"flood"}, 10*MaxItems)...)
		synctest.Wait()
		b.Add("home", slices.Repeat([]string{"other"}, 2*turnItems)...)
		b.Add("home", "third")
		b.Drain()
		count := func(batch []string, tenant string) (n int) {
			for _, item := range batch {
				if item == tenant {
					n++
				}
			}
			return n
		}
		assert.Equal(t, MaxItems, count(batches[0], "flood"), "nothing else has come")
		assert.Equal(t, 2*turnItems, count(batches[1], "other"))
		assert.Equal(t, 1, count(batches[1], "third"))
		assert.Len(t, batches, 11)
	})
}

// There are few tenants in a batch: its transaction locks tables of each.
func TestBatchesHaveFewTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches [][]string
		b := New(t.Context(), func(_ context.Context, _ string, batch []string) {
			batches = append(batches, batch)
			time.Sleep(10 * time.Millisecond)
		})
		b.Tenant = func(item string) string { return item }
		var all []string
		for i := range 3 * batchTenants {
			all = append(all, fmt.Sprint("tenant-", i))
		}
		b.Add("home", append(all, all...)...)
		b.Drain()
		for _, batch := range batches {
			assert.Len(t, slices.Compact(slices.Sorted(slices.Values(batch))), batchTenants)
		}
		assert.Len(t, batches, 3)

		b.Tenants, batches = 1, nil
		b.Add("home", slices.Repeat([]string{"a", "b"}, 3*turnItems)...)
		b.Drain()
		assert.Equal(t, [][]string{slices.Repeat([]string{"a"}, 3*turnItems),
			slices.Repeat([]string{"b"}, 3*turnItems)}, batches)
	})
}

// What is written may hand more over, also while somebody waits for the end of all.
func TestDrainOfWhatHandsMoreOver(t *testing.T) {
	written := 0
	var b *Batcher[string, int]
	b = New(t.Context(), func(_ context.Context, key string, batch []int) {
		written += len(batch)
		if more := batch[0] - 1; more > 0 {
			b.Add(key, more)
		}
	})
	b.Add("home", 1000)
	b.Drain()
	assert.Equal(t, 1000, written)
}
