package httpapi

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

const (
	// deniedWindow is how long calls of a kind are counted together.
	deniedWindow = time.Minute
	// deniedFlush is how soon the first call of a kind is in the audit.
	deniedFlush = time.Second
	// deniedKinds is how many kinds this node writes down one by one in an hour. Each has
	// two entries at most: one for its first call, and one for all that follow in its
	// minute. What comes on top has one entry a minute for all of it.
	deniedKinds = 300
	// deniedPending is how many entries wait for a database that doesn't take them.
	deniedPending = 2 * deniedKinds
)

// deniedKey is what calls have in common that are counted together.
type deniedKey struct {
	schema  string // the tenant in whose audit they are; "": none
	issuer  string // proven, as the subject is
	subject string
	address string
	action  string
	reason  string
}

// deniedCalls counts calls that were denied and writes them to the audit in the
// background: whoever floods the API with bad tokens neither waits for the database nor
// fills it. It is safe for concurrent use.
type deniedCalls struct {
	write func(context.Context, []*store.Act) error
	now   func() time.Time
	log   *slog.Logger

	flushing sync.Mutex // held by the one who writes

	mu      sync.Mutex
	kinds   map[deniedKey]*deniedKind
	left    int       // how many more kinds may be begun until refill
	refill  time.Time // when left is full again
	pending []*store.Act
	failing bool // the last write did
}

// deniedKind is what is known of one kind in its minute.
type deniedKind struct {
	schema      string
	entry       asyncflow.AuditEntry // of the first call
	begun       time.Time
	calls       int64 // not in an entry yet
	first, last time.Time
	early       bool // the first entry doesn't wait for the end of the minute
}

func newDeniedCalls(write func(context.Context, []*store.Act) error, now func() time.Time, log *slog.Logger) *deniedCalls {
	return &deniedCalls{write: write, now: now, log: log, kinds: map[deniedKey]*deniedKind{}}
}

// note counts a call. describe is asked for its entry if it is the first of its kind.
func (d *deniedCalls) note(key deniedKey, describe func() asyncflow.AuditEntry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	k := d.kinds[key]
	if k == nil {
		k = d.begin(key, now, describe)
	}
	if k.calls == 0 {
		k.first = now
	}
	k.calls++
	k.last = now
}

// begin begins a kind or, when there are too many, returns that of all the others.
func (d *deniedCalls) begin(key deniedKey, now time.Time, describe func() asyncflow.AuditEntry) *deniedKind {
	if !now.Before(d.refill) {
		d.left, d.refill = deniedKinds, now.Add(time.Hour)
	}
	if d.left > 0 {
		d.left--
		k := &deniedKind{schema: key.schema, entry: describe(), begun: now, early: true}
		d.kinds[key] = k
		return k
	}
	others := d.kinds[deniedKey{}]
	if others == nil {
		others = &deniedKind{begun: now, entry: asyncflow.AuditEntry{Origin: asyncflow.AuditFromAPI, Action: asyncflow.AuditAny,
			Outcome: asyncflow.AuditDenied, Detail: map[string]any{"reason": "a flood: there were too many kinds of denied calls to write down each"}}}
		d.kinds[deniedKey{}] = others
	}
	return others
}

// run writes what there is to write until ctx ends.
func (d *deniedCalls) run(ctx context.Context) {
	ticker := time.NewTicker(deniedFlush)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			d.flush(false)
		}
	}
}

// flush writes the entries that are due; all, if nothing follows.
func (d *deniedCalls) flush(all bool) {
	d.flushing.Lock()
	defer d.flushing.Unlock()
	d.mu.Lock()
	d.collect(all)
	acts := d.pending
	d.mu.Unlock()
	if len(acts) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), recordTime)
	defer cancel()
	err := d.write(ctx, acts)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		d.pending = d.pending[len(acts):]
	} else if !d.failing {
		d.log.Error("can't write denied calls to the audit; it is tried again", "entries", len(acts), "error", err)
	}
	d.failing = err != nil
}

// collect makes entries of what is due and forgets kinds whose minute is over.
func (d *deniedCalls) collect(all bool) {
	now := d.now()
	for key, k := range d.kinds {
		over := all || now.Sub(k.begun) >= deniedWindow
		if k.calls > 0 && (over || k.early) {
			d.queue(k)
		}
		if over {
			delete(d.kinds, key)
		}
	}
}

func (d *deniedCalls) queue(k *deniedKind) {
	e := k.entry
	e.At, e.Calls = k.first, k.calls
	if k.calls > 1 {
		e.LastAt = k.last
	}
	k.calls, k.early = 0, false
	if len(d.pending) >= deniedPending {
		d.log.Error("an entry of the audit is lost: the database doesn't take it", "action", e.Action, "address", e.Address, "calls", e.Calls)
		return
	}
	d.pending = append(d.pending, store.NewAct(k.schema, e))
}
