package dispatcher

import (
	"context"
	"sync"

	"github.com/asyncflow/asyncflow/store"
)

// underway counts the slots of each type whose tasks are still to come: a lease of theirs is
// under way. Each began with the type as it was then.
type underway struct {
	mu      sync.Mutex
	slots   map[store.TypeKey]int // without zeros
	over    chan struct{}         // closed and replaced when a type has none any more
	waiting int                   // calls of await
}

func newUnderway() *underway {
	return &underway{slots: map[store.TypeKey]int{}, over: make(chan struct{})}
}

func (u *underway) add(key store.TypeKey, n int) {
	if n == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.slots[key] += n; u.slots[key] == 0 {
		delete(u.slots, key)
		close(u.over)
		u.over = make(chan struct{})
	}
}

func (u *underway) count(key store.TypeKey) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.slots[key]
}

// await waits until a type has none, or until ctx ends.
func (u *underway) await(ctx context.Context, key store.TypeKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.waiting++
	for u.slots[key] != 0 && ctx.Err() == nil {
		over := u.over
		u.mu.Unlock()
		select {
		case <-over:
		case <-ctx.Done():
		}
		u.mu.Lock()
	}
	u.waiting--
}

// Quiesce waits for the leases of a type that are under way, if it is paused by now: others
// begin no more. It returns when their tasks have been handed over, or when ctx ends.
func (d *Dispatcher) Quiesce(ctx context.Context, key store.TypeKey) {
	if d.hasUnderway(key) {
		d.underway.await(ctx, key)
	}
}

// hasUnderway reports whether leases of a type are under way. The door's lock has those seen
// that are about to begin for the type as it was.
func (d *Dispatcher) hasUnderway(key store.TypeKey) bool {
	d.door.mu.Lock()
	defer d.door.mu.Unlock()
	return d.underway.count(key) > 0
}

// current returns a type as this node knows it now; as it was, if it is gone.
func (d *Dispatcher) current(t *store.Type) *store.Type {
	if now, err := d.store.Catalog.Type(t.Tenant, t.Name); err == nil {
		return now
	}
	return t
}
