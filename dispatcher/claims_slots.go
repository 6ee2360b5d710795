package dispatcher

import "sync"

// claimSlots shares the transactions for claims between tenants: they take turns, so that one with
// large claims doesn't delay the others by more than one transaction. One slot is for lines with
// calls that don't wait for tasks.
type claimSlots struct {
	mu      sync.Mutex
	free    int
	tenants []string // with lines that wait for a slot; the next one's turn is first
	lines   map[string][]slotAsk
}

// slotAsk is a line that waits for a slot.
type slotAsk struct {
	prompt bool          // it has calls that don't wait for tasks
	got    chan struct{} // closed when it has the slot
}

func newClaimSlots(n int) *claimSlots {
	return &claimSlots{free: n, lines: map[string][]slotAsk{}}
}

// take waits for a slot.
func (s *claimSlots) take(tenant string, prompt bool) {
	ask := slotAsk{prompt, make(chan struct{})}
	s.mu.Lock()
	if len(s.lines[tenant]) == 0 {
		s.tenants = append(s.tenants, tenant)
	}
	s.lines[tenant] = append(s.lines[tenant], ask)
	s.hand()
	s.mu.Unlock()
	<-ask.got
}

// give gives a slot back.
func (s *claimSlots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	s.hand()
}

// hand hands out free slots, by turn between tenants. s.mu is held.
func (s *claimSlots) hand() {
	for s.free > 0 {
		i, j := s.next()
		if i < 0 {
			return
		}
		tenant := s.tenants[i]
		all := s.lines[tenant]
		s.free--
		close(all[j].got)
		s.tenants = append(s.tenants[:i:i], s.tenants[i+1:]...)
		if all = append(all[:j:j], all[j+1:]...); len(all) == 0 {
			delete(s.lines, tenant)
			continue
		}
		s.lines[tenant] = all
		s.tenants = append(s.tenants, tenant) // behind the others
	}
}

// next returns the places of the tenant and its line that get a slot next; negative: none may have
// the last one.
func (s *claimSlots) next() (tenant, line int) {
	for i, name := range s.tenants {
		for j, ask := range s.lines[name] {
			if ask.prompt || s.free > 1 {
				return i, j
			}
		}
	}
	return -1, -1
}
