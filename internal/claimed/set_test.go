package claimed_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/claimed"
)

// world says which tasks are still open.
type world struct {
	mu    sync.Mutex
	ended []string
	asked []string
	full  int
}

func (w *world) set(most int) *claimed.Set {
	return claimed.New(most, func(_ context.Context, id, token string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, id+token)
		return !slices.Contains(w.ended, id)
	}, func() { w.full++ })
}

// A full set drops only ended claims, and waits if there are none.
func TestFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		s := w.set(3)
		for _, id := range []string{"a", "b", "c"} {
			require.Positive(t, s.WaitForCapacity(t.Context(), 10))
			require.True(t, s.Take(id, 1))
			s.Later(id, "!")
		}
		require.Empty(t, w.asked, "there was room")
		w.ended = []string{"b"}
		require.Equal(t, 1, s.WaitForCapacity(t.Context(), 10))
		require.Equal(t, []string{"a!", "b!", "c!"}, w.asked)
		require.ElementsMatch(t, []string{"a", "c"}, s.IDs())
		require.Zero(t, w.full)

		require.True(t, s.Take("d", 1))
		s.Later("d", "")
		begin := time.Now()
		go func() {
			time.Sleep(time.Minute)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ended = append(w.ended, "d")
		}()
		require.Equal(t, 1, s.WaitForCapacity(t.Context(), 10))
		require.InDelta(t, time.Minute, time.Since(begin), float64(2*time.Second))
		require.Less(t, len(w.asked), 250)
		require.Equal(t, 1, w.full, "it is told once")
		require.ElementsMatch(t, []string{"a", "c"}, s.IDs())

		require.True(t, s.Take("e", 1))
		s.Later("e", "")
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		require.Zero(t, s.WaitForCapacity(ctx, 10), "ctx has ended")
	})
}

// The number of claims that are worked on is bounded, too.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		s := w.set(3)
		require.Equal(t, 2, s.WaitForCapacity(t.Context(), 2))
		require.Equal(t, 3, s.WaitForCapacity(t.Context(), 9))
		s.Take("a", 1)
		s.Take("b", 1)
		go func() {
			time.Sleep(time.Hour)
			s.End("a")
			time.Sleep(time.Hour)
			s.Later("b", "")
		}()
		begin := time.Now()
		require.Equal(t, 1, s.WaitForCapacity(t.Context(), 2))
		require.Equal(t, time.Hour, time.Since(begin))
		s.Take("c", 1)
		require.Equal(t, 1, s.WaitForCapacity(t.Context(), 2))
		require.Equal(t, 2*time.Hour, time.Since(begin))
		require.Empty(t, w.asked)
	})
}

// A claim is known until its end, or until there is another attempt of a task that went on
// elsewhere.
func TestTake(t *testing.T) {
	t.Parallel()
	s := (&world{}).set(3)
	require.True(t, s.Take("a", 1))
	require.False(t, s.Take("a", 1))
	require.False(t, s.Take("a", 2), "it is still worked on")
	s.Later("a", "")
	require.False(t, s.Take("a", 1))
	require.True(t, s.Take("a", 2))
	require.False(t, s.Take("a", 2))
	s.End("a")
	require.True(t, s.Take("a", 2))
}
