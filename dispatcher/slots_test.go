package dispatcher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store"
)

// A type that there was no room for is woken once by slots that are given back, also by
// those that came back while it was looked at.
func TestSlotsWake(t *testing.T) {
	t.Parallel()
	woken := map[store.TypeKey]int{}
	s := newSlots(8, func(key store.TypeKey) { woken[key]++ })
	pipe, other := store.TypeKey{Tenant: "acme", Type: "pipe"}, store.TypeKey{Tenant: "acme", Type: "other"}
	require.Equal(t, 8, s.take(t.Context(), 8))
	looked := s.given()
	s.await(pipe, looked)
	require.Empty(t, woken)
	s.give(1)
	require.Equal(t, map[store.TypeKey]int{pipe: 1}, woken)
	s.give(1)
	require.Equal(t, map[store.TypeKey]int{pipe: 1}, woken, "it doesn't wait any more")
	s.await(other, looked)
	require.Equal(t, map[store.TypeKey]int{pipe: 1, other: 1}, woken)
	s.give(0)
	s.give(1)
	require.Equal(t, map[store.TypeKey]int{pipe: 1, other: 1}, woken)
}

// What has ended waits for more to end while there are plenty of slots.
func TestMayLinger(t *testing.T) {
	t.Parallel()
	d := &Dispatcher{cfg: Config{Concurrency: 8}, slots: newSlots(8, nil)}
	for taken, want := range map[int]string{0: "........", 1: "l.......", 3: "lll.....", 6: "llllll..", 7: "........"} {
		n, _ := d.slots.tryTake(taken, 0)
		require.Equal(t, taken, n)
		for ended, may := range want {
			require.Equal(t, may == 'l', d.MayLinger(ended), "%d of %d", ended, taken)
		}
		d.slots.give(taken)
	}
}
