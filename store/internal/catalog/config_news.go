package catalog

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow/internal/sleep"
)

// configNews are the announced changes of configuration that are still to be read. Any role of the
// database can announce: however many there are, a tenant is here once, and is read once in a
// while.
type configNews struct {
	mu      sync.Mutex
	tenants map[string]bool // known ones
	unknown bool            // a tenant that this node doesn't know changed
	kick    chan struct{}
}

func newConfigNews() *configNews {
	return &configNews{tenants: map[string]bool{}, kick: make(chan struct{}, 1)}
}

// hear takes an announcement: the number of a tenant, or none.
func (n *configNews) hear(payload string, c *Catalog) {
	number, err := strconv.ParseUint(payload, 10, 32)
	slug, known := c.tenantOf(uint32(number))
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && known {
		n.tenants[slug] = true
	} else {
		n.unknown = true
	}
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// read returns what was heard since the last call.
func (n *configNews) read() (tenants map[string]bool, unknown bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	tenants = n.tenants
	unknown = n.unknown
	n.tenants = map[string]bool{}
	n.unknown = false
	return tenants, unknown
}

// followConfig reads what was announced, until ctx ends. What it can't read is found by the look
// that comes every second. So is a change of an unknown tenant when another came before it in that
// second: that look reads all tenants.
func (w *Wakeups) followConfig(ctx context.Context) error {
	var last time.Time // the time of the last look at all tenants
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.config.kick:
		}
		tenants, unknown := w.config.read()
		for slug := range tenants {
			w.follow(ctx, slug)
		}
		if unknown && time.Since(last) >= RefreshEvery {
			last = time.Now()
			w.follow(ctx, "")
		}
		sleep.For(ctx, notifyEvery)
	}
}

// follow looks at one tenant, or ("") at all.
func (w *Wakeups) follow(ctx context.Context, slug string) {
	if _, err := w.store.Catalog.look(ctx, slug, false); err != nil && ctx.Err() == nil {
		w.store.Log.Warn("can't read the configuration that was announced", "error", err)
	}
}
