package dispatcher

import "sync"

// tenantTries is how many tries of a tenant run at a time.
const tenantTries = 2

// turns lets tenantTries at a time work for each tenant.
type turns struct {
	mu      sync.Mutex
	tenants map[string]*turn
}

// turn is that of a tenant. It is kept while somebody works or waits.
type turn struct {
	slots chan struct{} // has one for each that works
	users int
}

func newTurns() *turns { return &turns{tenants: map[string]*turn{}} }

// take waits for a tenant's turn. The caller calls end when its work is done.
func (t *turns) take(tenant string) (end func()) {
	t.mu.Lock()
	one := t.tenants[tenant]
	if one == nil {
		one = &turn{slots: make(chan struct{}, tenantTries)}
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
