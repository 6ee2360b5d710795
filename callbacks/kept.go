package callbacks

import "sync"

// maxKept bounds how many values are kept of a kind.
const maxKept = 10000

// kept keeps what is made from texts or bytes, such as secrets. Once there are too many it
// begins anew: those of endpoints that have changed must not pile up.
type kept[V any] struct {
	mu  sync.RWMutex
	all map[string]V
}

// keptOf returns what is kept for a text, which isn't copied.
func keptOf[K ~string | ~[]byte, V any](k *kept[V], text K) (V, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	v, ok := k.all[string(text)]
	return v, ok
}

func (k *kept[V]) put(text string, made V) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) == 0 || len(k.all) >= maxKept {
		k.all = map[string]V{}
	}
	k.all[text] = made
}
