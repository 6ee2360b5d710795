package hot

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the sizes of leases, keys with constant backlog are never served more than a turn apart,
// and each lease is filled.
func TestRingDealsByWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		weights := map[string]int{}
		var keys []string
		for i := range rapid.IntRange(1, 20).Draw(t, "keys") {
			key := fmt.Sprintf("%02d", i)
			keys = append(keys, key)
			weights[key] = rapid.IntRange(1, 9).Draw(t, "weight")
		}
		served := map[string]int{}
		last := turn{key: keys[len(keys)-1]}
		for range rapid.IntRange(1, 30).Draw(t, "leases") {
			n := rapid.IntRange(1, 100).Draw(t, "n")
			last = dealOnce(t, keys, weights, n, last, served)
		}
		for _, a := range keys {
			for _, b := range keys {
				// rounds of a are at most one more than those of b
				if served[a]/weights[a] > (served[b]+weights[b]-1)/weights[b]+1 {
					t.Fatalf("%s was served %d times by %d, %s %d times by %d", a, served[a],
						weights[a], b, served[b], weights[b])
				}
			}
		}
	})
}

// dealOnce is a lease of n tasks of keys with many due tasks.
func dealOnce(
	t *rapid.T, keys []string, weights map[string]int, n int, last turn, served map[string]int,
) turn {
	at := 0
	for i, key := range keys {
		if key == last.key {
			at = i
		}
	}
	if last.left == 0 {
		at = (at + 1) % len(keys)
	}
	order := append(append([]string{}, keys[at:]...), keys[:at]...)
	r := newRing(order, func(key string) int { return weights[key] }, true, last)
	first := r.left
	var found []Candidate
	sum := 0
	for i, share := range r.deal(n) {
		served[order[i]] += share
		sum += share
		for range share {
			found = append(found, Candidate{LineKey: order[i]})
		}
	}
	if sum != n {
		t.Fatalf("a lease of %d tasks got %d", n, sum)
	}
	next, _ := lastTurn(r.inTurn(found, first))
	return next
}
