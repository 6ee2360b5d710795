package dispatcher

import (
	"sync"

	"github.com/asyncflow/asyncflow/store"
)

// held counts the tasks that the node holds, by type.
type held struct {
	mu    sync.Mutex
	types map[store.TypeKey]int // without zeros
}

func (h *held) add(key store.TypeKey, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.types[key] += n; h.types[key] == 0 {
		delete(h.types, key)
	}
}

func (h *held) count(key store.TypeKey) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.types[key]
}
