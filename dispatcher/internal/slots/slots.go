package slots

import "sync"

// Slots shares slots between tenants: they take turns, so that one that asks for many doesn't delay
// other tenants by more than one slot. Prompt asks take turns, too, but the other asks never get
// all slots.
type Slots struct {
	mu      sync.Mutex
	free    int
	patient int      // asks that aren't prompt and may get a slot now
	tenants []string // with asks that wait; the next one's turn is first
	lines   map[string][]slotAsk
}

// slotAsk is an ask that waits for its slot.
type slotAsk struct {
	prompt bool
	got    chan struct{} // closed when it gets the slot
}

// NewSlots returns n free slots.
func NewSlots(n int) *Slots {
	return &Slots{free: n, patient: n - 1, lines: map[string][]slotAsk{}}
}

// Acquire waits for a slot. Release gives it back.
func (s *Slots) Acquire(tenant string, prompt bool) {
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

// Release gives a slot back that a prompt ask had, or another one.
func (s *Slots) Release(prompt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(prompt, 1)
	s.hand()
}

// count counts n slots more as free. s.mu is held.
func (s *Slots) count(prompt bool, n int) {
	s.free += n
	if !prompt {
		s.patient += n
	}
}

// hand hands out free slots, by turn between tenants. s.mu is held.
func (s *Slots) hand() {
	for s.free > 0 {
		i, j := s.next()
		if i < 0 {
			return
		}
		tenant := s.tenants[i]
		all := s.lines[tenant]
		s.count(all[j].prompt, -1)
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

// next returns the places of the tenant and its ask that get a slot next; negative: none may get
// one.
func (s *Slots) next() (tenant, ask int) {
	for i, name := range s.tenants {
		for j, ask := range s.lines[name] {
			if ask.prompt || s.patient > 0 {
				return i, j
			}
		}
	}
	return -1, -1
}

// PerTenant lets a few at a time work for each tenant.
type PerTenant struct {
	most    int
	mu      sync.Mutex
	tenants map[string]*tenantSlots
}

// tenantSlots are the slots of a tenant. They are kept while somebody works or waits.
type tenantSlots struct {
	slots chan struct{} // one value for each that works
	users int
}

// NewPerTenant returns turns for most at a time of each tenant.
func NewPerTenant(most int) *PerTenant {
	return &PerTenant{most: most, tenants: map[string]*tenantSlots{}}
}

// Acquire waits for a tenant's turn. The caller calls end when its work is done.
func (t *PerTenant) Acquire(tenant string) (end func()) {
	t.mu.Lock()
	one := t.tenants[tenant]
	if one == nil {
		one = &tenantSlots{slots: make(chan struct{}, t.most)}
		t.tenants[tenant] = one
	}
	one.users++
	t.mu.Unlock()
	one.slots <- struct{}{}
	return func() {
		<-one.slots
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.tenants, tenant)
		}
	}
}

// Bounded shares slots between tenants, and bounds the slots of each tenant.
type Bounded struct {
	all  *Slots
	each *PerTenant
}

// NewBounded returns n free slots; each tenant may use most of them at a time.
func NewBounded(n, most int) *Bounded { return &Bounded{NewSlots(n), NewPerTenant(most)} }

// Acquire waits for a slot. The caller calls end to give it back.
func (b *Bounded) Acquire(tenant string) (end func()) {
	endTenant := b.each.Acquire(tenant)
	b.all.Acquire(tenant, true)
	return func() {
		b.all.Release(true)
		endTenant()
	}
}
