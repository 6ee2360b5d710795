package dispatcher

import (
	"sync"

	"github.com/asyncflow/asyncflow/store"
)

// holding are the types of which tasks may be held by stage.
type holding struct {
	mu    sync.RWMutex
	types map[store.TypeKey]bool
}

func newHolding() *holding { return &holding{types: map[store.TypeKey]bool{}} }

func (h *holding) has(key store.TypeKey) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.types[key]
}

func (h *holding) set(key store.TypeKey, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if holds {
		h.types[key] = true
	} else {
		delete(h.types, key)
	}
}
