package store

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// gathered adds items of so many bytes to a gatherer of one writer, at once, and returns the
// sizes of its batches in the order in which they began, and how many were written at a
// time at most. To write one takes 10 ms.
func gathered(t *testing.T, items ...int) (batches [][]int, most int) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan []int, len(items))
		under, peak := make(chan int, 1), 0
		under <- 0
		g := newGatherer(t.Context(), 1, 500, time.Millisecond, func(_ context.Context, _ TypeKey, batch []int) {
			n := <-under + 1
			peak = max(peak, n)
			under <- n
			begun <- batch
			time.Sleep(10 * time.Millisecond)
			under <- <-under - 1
		})
		g.size = func(bytes int) int { return bytes }
		g.add(TypeKey{"acme", "report"}, items...)
		g.drain()
		close(begun)
		for batch := range begun {
			batches = append(batches, batch)
		}
		most = peak
	})
	return batches, most
}

func TestGathererLongItems(t *testing.T) {
	for _, c := range []struct {
		name          string
		items         []int
		batches, most int
	}{
		{"short ones one batch at a time", slices.Repeat([]int{200}, 2_000), 4, 1},
		{"long ones by bytes, several at a time", slices.Repeat([]int{100 << 10}, 40), 4, 3},
		{"some that are longer than a batch", []int{2 << 20, 200, 3 << 20}, 3, 3},
		{"short ones after long ones", append(slices.Repeat([]int{1 << 20}, 2), slices.Repeat([]int{10}, 600)...), 4, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			batches, most := gathered(t, c.items...)
			if len(batches) != c.batches || most != c.most {
				t.Errorf("%d batches, %d at a time; want %d, %d", len(batches), most, c.batches, c.most)
			}
			n := 0
			for _, batch := range batches {
				n += len(batch)
				if sum := sumOf(batch); len(batch) > 1 && sum > batchBytes {
					t.Errorf("a batch of %d items has %d bytes", len(batch), sum)
				}
			}
			if n != len(c.items) {
				t.Errorf("%d items were written; want %d", n, len(c.items))
			}
		})
	}
}

// Beside other nodes batches are larger under load, and no later without.
func TestGathererBesideOthers(t *testing.T) {
	batches := func(perMS int, others bool) (n int) {
		synctest.Test(t, func(t *testing.T) {
			g := newGatherer(t.Context(), 1, 5000, 3*time.Millisecond, func(context.Context, TypeKey, []int) {
				n++
				time.Sleep(time.Millisecond)
			})
			g.others = func(int) bool { return others }
			for range 300 {
				g.add(TypeKey{"acme", "report"}, make([]int, perMS)...)
				time.Sleep(time.Millisecond)
			}
			g.drain()
		})
		return n
	}
	assert.InDelta(t, 100, batches(8, false), 5)
	assert.Less(t, batches(8, true), 40)
	assert.InDelta(t, 8, batches(18, true), 2, "so long at most")
	assert.InDelta(t, batches(1, false), batches(1, true), 30)
}

// A batch lingers for items that are yet to come, not once all there are have come.
func TestGathererLingersForMore(t *testing.T) {
	for _, all := range []int{200, 201} {
		synctest.Test(t, func(t *testing.T) {
			g := newGatherer(t.Context(), 1, 5000, 3*time.Millisecond, func(context.Context, TypeKey, []int) { time.Sleep(time.Millisecond) })
			g.others = func(unwritten int) bool { return unwritten < all }
			key := TypeKey{"acme", "report"}
			g.add(key, make([]int, 100)...)
			all -= 100
			time.Sleep(4 * time.Millisecond)
			began := time.Now()
			g.add(key, make([]int, 100)...)
			g.drain()
			want := time.Millisecond // to write it
			if all > 100 {
				want = 3*time.Millisecond*6 - 3*time.Millisecond
			}
			assert.Equal(t, want, time.Since(began))
		})
	}
}

// A batch that has to wait takes along what comes meanwhile.
func TestGathererAwaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := TypeKey{"acme", "report"}
		var batches [][]int
		g := newGatherer(t.Context(), 1, 5, time.Millisecond, func(_ context.Context, _ TypeKey, batch []int) { batches = append(batches, batch) })
		g.await = func(_ TypeKey, batch func() []int) {
			for len(batch()) < 3 {
				time.Sleep(time.Millisecond)
			}
		}
		g.add(key, 1)
		time.Sleep(10 * time.Millisecond)
		assert.Empty(t, batches)
		g.add(key, 2, 3)
		g.drain()
		g.add(key, 4, 5, 6, 7, 8, 9, 10, 11)
		g.drain()
		assert.Equal(t, [][]int{{1, 2, 3}, {4, 5, 6, 7, 8}, {9, 10, 11}}, batches)
	})
}

func sumOf(items []int) (sum int) {
	for _, n := range items {
		sum += n
	}
	return sum
}
