package slots

import "sync"

// PerTenant lets a few at a time work for each tenant.
type PerTenant struct {
	most    int
	mu      sync.Mutex
	tenants map[string]*tenantSlots
}

// tenantSlots are the slots of a tenant. They are kept while somebody works or waits.
type tenantSlots struct {
	slots chan struct{} // has one for each that works
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
