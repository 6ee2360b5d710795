package dispatcher

import (
	"sync"

	"github.com/asyncflow/asyncflow/store"
)

// held counts the tasks that the node holds, by type and by tenant.
type held struct {
	mu      sync.Mutex
	types   map[store.TypeKey]int // without zeros
	tenants map[string]int
}

func (h *held) add(key store.TypeKey, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.types[key] += n; h.types[key] == 0 {
		delete(h.types, key)
	}
	if h.tenants[key.Tenant] += n; h.tenants[key.Tenant] == 0 {
		delete(h.tenants, key.Tenant)
	}
}

func (h *held) count(key store.TypeKey) (ofType, ofTenant int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.types[key], h.tenants[key.Tenant]
}

func (h *held) ofTenant(tenant string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tenants[tenant]
}
