package rates

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func fewRates(most int) *Rates {
	r := New(func() int { return 1 }, func() bool { return false })
	r.most = most
	return r
}

// At most a quarter of the buckets are one tenant's, for any number of flow keys, and those of all
// tenants together keep to the limit.
func TestBucketsAreBounded(t *testing.T) {
	t.Parallel()
	const most, slow = 400, 1.0 / 3600
	now := time.Now()
	r := fewRates(most)
	audit := func() {
		t.Helper()
		all := 0
		for _, buckets := range r.tenants {
			require.NotEmpty(t, buckets)
			require.LessOrEqual(t, len(buckets), most/4)
			all += len(buckets)
		}
		require.Equal(t, all, r.kept)
		require.LessOrEqual(t, all, most)
	}
	small := Key{"small", "type", "key"}
	r.Spend(small, slow, now, 1)
	for n := range 3 * most {
		r.Spend(Key{"greedy", "type", fmt.Sprint(n)}, slow, now, 1)
		audit()
	}
	tokens, _ := r.Available(small, slow, now)
	require.Zero(t, tokens, "a greedy tenant takes nothing from another one")
	for n := range 3 * most {
		r.Spend(Key{fmt.Sprint("t", n%7), "type", fmt.Sprint(n)}, slow, now, 1)
		audit()
	}
	require.Equal(t, most, r.kept)
}

// Full buckets are dropped first, if some are in the sample, so that the rates of the others hold.
func TestFullBucketsGiveWay(t *testing.T) {
	t.Parallel()
	const most = 400
	now := time.Now()
	r := fewRates(most)
	for n := range most/4 - 1 {
		r.Available(Key{"a", "type", fmt.Sprint(n)}, 1, now)
	}
	empty := Key{"a", "type", "empty"}
	r.Spend(empty, 1, now, 1)
	for n := range 50 {
		r.Available(Key{"a", "type", fmt.Sprint("new", n)}, 1, now)
	}
	tokens, at := r.Available(empty, 1, now)
	require.Zero(t, tokens)
	require.WithinDuration(t, now.Add(time.Second), at, time.Millisecond)
}
