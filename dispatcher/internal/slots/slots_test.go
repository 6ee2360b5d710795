package slots

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// granted reports whether a line got its slot.
func granted(ask slotAsk) bool {
	select {
	case <-ask.got:
		return true
	default:
		return false
	}
}

// ask puts a line in its tenant's queue, as take does, without waiting.
func (s *Slots) ask(tenant string, prompt bool) slotAsk {
	one := slotAsk{prompt, make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lines[tenant]) == 0 {
		s.tenants = append(s.tenants, tenant)
	}
	s.lines[tenant] = append(s.lines[tenant], one)
	s.hand()
	return one
}

// Tenants take turns, and the last slot is for calls that don't wait.
func TestSlots(t *testing.T) {
	t.Parallel()
	s := NewSlots(3)
	var large []slotAsk
	for range 5 {
		large = append(large, s.ask("large", false))
	}
	small := s.ask("small", false)
	count := func() (n int) {
		for _, one := range large {
			if granted(one) {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 2, count(), "one slot is left for calls that don't wait")
	prompt := s.ask("small", true)
	assert.True(t, granted(prompt))
	s.Release(true)
	assert.False(t, granted(small), "that one is for calls that don't wait")
	s.Release(false)
	assert.Equal(t, []any{3, false}, []any{count(), granted(small)}, "the small one has had a turn")
	s.Release(false)
	assert.Equal(t, []any{3, true}, []any{count(), granted(small)}, "not the large one's fourth")
	for range 10 {
		s.Release(false)
	}
	assert.Equal(t, 5, count())
	assert.Empty(t, s.tenants)
	assert.Empty(t, s.lines)
}

// Calls that don't wait leave a turn to the calls of other tenants that do.
func TestPromptAsksLeaveTurns(t *testing.T) {
	t.Parallel()
	s := NewSlots(3)
	for range 4 {
		s.ask("loud", true) // three got a slot, one is in line
	}
	quiet := s.ask("quiet", false)
	s.Release(true)
	assert.False(t, granted(quiet), "the loud one was in line before")
	s.ask("loud", true)
	s.Release(true)
	assert.True(t, granted(quiet))
}
