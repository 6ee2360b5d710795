// Package deniedcalls writes calls that were denied to the audit, in the background. Calls of one
// kind are counted together, so that a flood of calls with bad tokens neither waits for the
// database nor fills it.
package deniedcalls

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// window is how long the calls of a kind are counted together.
	window = time.Minute
	// flushInterval is how soon the first call of a kind is in the audit.
	flushInterval = time.Second
	// maxKinds is how many kinds a node writes one by one in an hour. A kind has at most two
	// entries: one for its first call, and one for all that follow in its window. The calls of
	// all further kinds share one entry a minute.
	maxKinds = 300
	// maxPending is how many entries wait for a database that doesn't take them.
	maxPending = 2 * maxKinds
	// writeTimeout bounds one write of entries.
	writeTimeout = 3 * time.Second
)

// Key is what the calls of a kind have in common.
type Key struct {
	Schema  string // the tenant whose audit has the entry; "": the operator's audit
	Issuer  string // proven, like Subject
	Subject string
	Address string
	Action  string
	Reason  string
}

// WriteFunc writes entries to the audit.
type WriteFunc func(context.Context, []*store.AuditedCall) error

// Counter counts denied calls. It is safe for concurrent use.
type Counter struct {
	write WriteFunc
	now   func() time.Time
	log   *slog.Logger

	flushing sync.Mutex // held during a write

	mu      sync.Mutex
	kinds   map[Key]*kind
	left    int       // kinds that may still begin before refill
	refill  time.Time // when left becomes maxKinds again
	pending []*store.AuditedCall
	failing bool // the last write failed
}

// kind is what is known of one kind in its window.
type kind struct {
	schema      string
	entry       asyncflow.AuditEntry // of the first call
	begun       time.Time
	calls       int64 // in no entry yet
	first, last time.Time
	early       bool // the first entry doesn't wait for the end of the window
}

// New returns a counter that has counted nothing yet.
func New(write WriteFunc, now func() time.Time, log *slog.Logger) *Counter {
	return &Counter{write: write, now: now, log: log, kinds: map[Key]*kind{}}
}

// Count counts a call. It calls describe for the entry if the call is the first of its kind.
func (c *Counter) Count(key Key, describe func() asyncflow.AuditEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	k := c.kinds[key]
	if k == nil {
		k = c.begin(key, now, describe)
	}
	if k.calls == 0 {
		k.first = now
	}
	k.calls++
	k.last = now
}

// begin begins a kind. If there are too many it returns the kind that all further ones share.
func (c *Counter) begin(key Key, now time.Time, describe func() asyncflow.AuditEntry) *kind {
	if !now.Before(c.refill) {
		c.left, c.refill = maxKinds, now.Add(time.Hour)
	}
	if c.left > 0 {
		c.left--
		k := &kind{schema: key.Schema, entry: describe(), begun: now, early: true}
		c.kinds[key] = k
		return k
	}
	shared := c.kinds[Key{}]
	if shared == nil {
		shared = &kind{begun: now, entry: asyncflow.AuditEntry{
			Origin:  asyncflow.AuditFromAPI,
			Action:  asyncflow.AuditAny,
			Outcome: asyncflow.AuditDenied,
			Detail: map[string]any{
				"reason": "a flood: there were too many kinds of denied calls to write down each",
			},
		}}
		c.kinds[Key{}] = shared
	}
	return shared
}

// Run writes the entries that are due, until ctx ends.
func (c *Counter) Run(ctx context.Context) {
	ticker := time.NewTicker(flushInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			c.flush(false)
		}
	}
}

// Flush writes all entries, also those whose window isn't over.
func (c *Counter) Flush() { c.flush(true) }

// flush writes the entries that are due, or all.
func (c *Counter) flush(all bool) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	c.mu.Lock()
	c.collect(all)
	entries := c.pending
	c.mu.Unlock()
	if len(entries) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	err := c.write(ctx, entries)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.pending = c.pending[len(entries):]
	} else if !c.failing {
		c.log.Error("can't write denied calls to the audit; it is tried again",
			"entries", len(entries), "error", err)
	}
	c.failing = err != nil
}

// collect queues the entries that are due, and forgets the kinds whose window is over.
func (c *Counter) collect(all bool) {
	now := c.now()
	for key, k := range c.kinds {
		over := all || now.Sub(k.begun) >= window
		if k.calls > 0 && (over || k.early) {
			c.queue(k)
		}
		if over {
			delete(c.kinds, key)
		}
	}
}

func (c *Counter) queue(k *kind) {
	e := k.entry
	e.At, e.Calls = k.first, k.calls
	if k.calls > 1 {
		e.LastAt = k.last
	}
	k.calls, k.early = 0, false
	if len(c.pending) >= maxPending {
		c.log.Error("an entry of the audit is lost: the database doesn't take it",
			"action", e.Action, "address", e.Address, "calls", e.Calls)
		return
	}
	c.pending = append(c.pending, store.NewAuditedCall(k.schema, e))
}
