package turns

import "sync"

// PerTenant lets a few at a time work for each tenant.
type PerTenant struct {
	most    int
	mu      sync.Mutex
	tenants map[string]*turn
}

// turn is that of a tenant. It is kept while somebody works or waits.
type turn struct {
	slots chan struct{} // has one for each that works
	users int
}

// NewPerTenant returns turns for most at a time of each tenant.
func NewPerTenant(most int) *PerTenant {
	return &PerTenant{most: most, tenants: map[string]*turn{}}
}

// Take waits for a tenant's turn. The caller calls end when its work is done.
func (t *PerTenant) Take(tenant string) (end func()) {
	t.mu.Lock()
	one := t.tenants[tenant]
	if one == nil {
		one = &turn{slots: make(chan struct{}, t.most)}
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
