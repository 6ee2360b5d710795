// Package deniedcalls writes calls that were denied to the audit, in the background. Calls of one
// kind are counted together, so that a flood of calls with bad tokens neither waits for the
// database nor fills it.
package deniedcalls

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
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
	// maxKinds is how many kinds of a budget a node writes one by one in an hour. There are at most
	// two entries of a kind: one for its first call, and one for all that follow in its window. The
	// calls of all further kinds share one entry a minute.
	maxKinds = 300
	// maxPending is how many entries of a budget wait for a database that doesn't take them, and
	// maxPendingAll how many of all budgets.
	maxPending    = 2 * maxKinds
	maxPendingAll = 20 * maxPending
	// maxFailures is how many budgets' writes may fail before the others wait for the next flush.
	maxFailures = 2
	// maxLate is how long after its time an entry is written with it. Exports of the audit wait for
	// five minutes (--lag), and would miss a later one.
	maxLate = 3 * time.Minute
	// writeTimeout bounds one write of entries.
	writeTimeout = 3 * time.Second
)

// Key is what the calls of a kind share.
type Key struct {
	// Budget is the name under which kinds are limited: a tenant with a proven token, or some text
	// that is no tenant's name. One budget can't use up another.
	Budget  string
	Schema  string // the tenant that gets the entry in its audit; "": the operator's audit
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
	budgets map[string]*budget
	pending int  // entries of all budgets
	failing bool // the last write failed
}

// budget holds the kinds that are limited together.
type budget struct {
	kinds   map[Key]*kind
	left    int       // kinds that may still begin before refill
	refill  time.Time // when left becomes maxKinds again
	pending []*store.AuditedCall
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

// New returns a counter at zero.
func New(write WriteFunc, now func() time.Time, log *slog.Logger) *Counter {
	return &Counter{write: write, now: now, log: log, budgets: map[string]*budget{}}
}

// Count counts a call. It calls describe for the entry if the call is the first of its kind.
func (c *Counter) Count(key Key, describe func() asyncflow.AuditEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	b := c.budgets[key.Budget]
	if b == nil {
		b = &budget{kinds: map[Key]*kind{}}
		c.budgets[key.Budget] = b
	}
	k := b.kinds[key]
	if k == nil {
		k = b.begin(key, now, describe)
	}
	if k.calls == 0 {
		k.first = now
	}
	k.calls++
	k.last = now
}

// begin begins a kind. If there are too many it returns the kind that all further ones share.
func (b *budget) begin(key Key, now time.Time, describe func() asyncflow.AuditEntry) *kind {
	if !now.Before(b.refill) {
		b.left, b.refill = maxKinds, now.Add(time.Hour)
	}
	if b.left > 0 {
		b.left--
		k := &kind{schema: key.Schema, entry: describe(), begun: now, early: true}
		b.kinds[key] = k
		return k
	}
	rest := Key{Budget: key.Budget, Schema: key.Schema}
	shared := b.kinds[rest]
	if shared == nil {
		shared = &kind{schema: key.Schema, begun: now, entry: asyncflow.AuditEntry{
			Origin:  asyncflow.AuditFromAPI,
			Action:  asyncflow.AuditAny,
			Outcome: asyncflow.AuditDenied,
			Tenant:  key.Schema,
			Detail: map[string]any{
				"reason": "a flood: there were too many kinds of denied calls to write down each",
			},
		}}
		b.kinds[rest] = shared
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

// Flush writes all entries, even before their window is over.
func (c *Counter) Flush() { c.flush(true) }

// flush writes the entries that are due, or all.
func (c *Counter) flush(all bool) {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	failures := 0
	for _, b := range c.collect(all) {
		if failures < maxFailures && !c.writePending(b) {
			failures++
		}
	}
}

// writePending writes the queued entries of a budget, and reports whether that worked. A tenant
// with a locked audit keeps only its own entries waiting.
func (c *Counter) writePending(b *budget) bool {
	c.mu.Lock()
	entries := b.pending
	c.mu.Unlock()
	c.dateLate(entries)
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	err := c.write(ctx, entries)
	c.mu.Lock()
	defer c.mu.Unlock()
	failed := c.failing
	c.failing = err != nil
	if err != nil {
		if !failed {
			c.log.Error("can't write denied calls to the audit; it is tried again",
				"entries", len(entries), "error", err)
		}
		return false
	}
	b.pending = b.pending[len(entries):]
	c.pending -= len(entries)
	return true
}

// dateLate gives entries that the database takes late the time of the write. Their detail gives the
// time of the first call, and of the last one.
func (c *Counter) dateLate(entries []*store.AuditedCall) {
	now := c.now()
	for _, e := range entries {
		if now.Sub(e.At) < maxLate {
			continue
		}
		detail := map[string]any{"first_at": e.At.UTC().Format(time.RFC3339Nano),
			"last_at": cmp.Or(e.LastAt, e.At).UTC().Format(time.RFC3339Nano)}
		maps.Copy(detail, e.Detail) // of an earlier try that failed, too
		e.Detail = detail
		e.At, e.LastAt = now, time.Time{}
	}
}

// collect queues the entries that are due, and forgets what is over. It returns the budgets with
// queued entries.
func (c *Counter) collect(all bool) (due []*budget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for name, b := range c.budgets {
		for key, k := range b.kinds {
			over := all || now.Sub(k.begun) >= window
			if k.calls > 0 && (over || k.early) {
				c.queue(b, k)
			}
			if over {
				delete(b.kinds, key)
			}
		}
		switch {
		case len(b.pending) > 0:
			due = append(due, b)
		case len(b.kinds) == 0 && !now.Before(b.refill):
			delete(c.budgets, name)
		}
	}
	return due
}

func (c *Counter) queue(b *budget, k *kind) {
	e := k.entry
	e.At, e.Calls = k.first, k.calls
	if k.calls > 1 {
		e.LastAt = k.last
	}
	k.calls, k.early = 0, false
	if len(b.pending) >= maxPending || c.pending >= maxPendingAll {
		c.log.Error("an entry of the audit is lost: the database doesn't take it",
			"action", e.Action, "address", e.Address, "calls", e.Calls)
		return
	}
	b.pending = append(b.pending, store.NewAuditedCall(k.schema, e))
	c.pending++
}
