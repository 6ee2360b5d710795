package dispatcher

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/batch"
	"github.com/asyncflow/asyncflow/dispatcher/internal/slots"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// Committer writes everything that a node writes on the hot path: new tasks, settlements, and
// extensions of leases, of all tenants and types. It gathers them into few transactions, retries
// the writes that the database did not confirm, and gives each caller its result. It also remembers
// the deliveries that were answered with 202.
//
// A node that only serves the API runs a Committer too, but no Dispatcher: its new tasks go in
// line.
type Committer struct {
	store *store.Store
	log   *slog.Logger

	writing context.Context // of all writing; independent of callers
	giveUp  context.CancelFunc

	writes       *batch.Batcher[int, *write] // by the tenant's home among the connections
	failedWrites *failedWrites               // types with a failed write
	tenantSlots  *slots.PerTenant            // of tenants, in tries to write something apart
	keyed        *batch.Batcher[store.TypeKey, *submission]
	dependent    *batch.Batcher[store.TypeKey, *submission] // that depend on other tasks
	replaced     *batch.Batcher[replacedKey, *submission]   // that replace the one with their key
	replacing    *batch.Batcher[store.TypeKey, *submission] // the last ones of these
	heldKeys     *heldKeys
	lookups      *batch.Batcher[store.TypeKey, lookup]
	freed        *batch.Batcher[store.TypeKey, string] // flow keys
	accepted     *accepted
	followUps    *followUps
	claims       *claims
	pending      *pendingQuotas
	retakes      chan struct{} // one value for each further try to take ids
	compares     chan struct{} // one value for each comparison of two contexts

	news       *store.Listener
	hearing    sync.Mutex    // held while news are handed on
	dispatcher *Dispatcher   // of this node; nil: there is none
	closed     chan struct{} // closed when nobody reads the news any more
	closing    sync.Once
}

const (
	// tenantTries is how many tries of a tenant to write a failed write again run at a time.
	tenantTries = 2
	// commitMost and commitBytes bound the writes of a transaction.
	commitMost  = batch.MaxItems
	commitBytes = batch.MaxBytes
	// The longest time that a write lingers for others to join it, from the begin of the previous
	// transaction. So a write that comes alone doesn't linger. No caller waits for a settlement,
	// but its task keeps its capacity until then.
	submitLinger = batch.DefaultLinger
	reportLinger = 1500 * time.Microsecond
	settleLinger = 3 * time.Millisecond
	lookupLinger = 500 * time.Microsecond
	// replaceLinger is the least time between two writes of a key with a task that is replaced:
	// each keeps a context, and the number of a task's contexts is bounded.
	replaceLinger = 10 * time.Millisecond
	// replacingLinger is the least time between two transactions that replace tasks of a type: the
	// keys that come meanwhile share the next one, as a transaction costs more than a row.
	replacingLinger = replaceLinger / 2
)

// NewCommitter returns a committer over a store. Close it before the store.
func NewCommitter(s *store.Store, log *slog.Logger) *Committer {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Committer{store: s, log: log, pending: newPendingQuotas(s, log),
		retakes: make(chan struct{}, lockProbes), compares: make(chan struct{}, 2)}
	c.writing, c.giveUp = context.WithCancel(context.Background())
	c.writes = batch.New(c.writing, c.commit)
	c.writes.Size = (*write).size
	c.writes.Linger = (*write).linger
	c.writes.Tenant = func(w *write) string { return w.key.Tenant }
	if s.Distributed() {
		c.writes.Tenants = 1
	}
	c.failedWrites = newFailedWrites(c)
	c.tenantSlots = slots.NewPerTenant(tenantTries)
	c.keyed = batch.New(c.writing, c.commitKeyed)
	c.keyed.Size = (*submission).size
	c.keyed.Writers = 2 // one may wait for another node's submit
	c.heldKeys = newHeldKeys(c)
	c.replaced = batch.New(c.writing, c.replaceOnce)
	c.replaced.Linger = func(*submission) time.Duration { return replaceLinger }
	c.replacing = batch.New(c.writing, c.commitKeyed)
	c.replacing.Size = (*submission).size
	c.replacing.Linger = func(*submission) time.Duration { return replacingLinger }
	c.replacing.Writers = 2
	c.dependent = batch.New(c.writing, c.commitDependent)
	c.dependent.Size = (*submission).size
	c.lookups = batch.New(c.writing, c.lookUp)
	c.lookups.Linger = func(lookup) time.Duration { return lookupLinger }
	c.lookups.Writers = 2
	c.freed = batch.New(c.writing, c.releaseKeys)
	c.freed.Linger = func(string) time.Duration { return settleLinger }
	c.accepted = newAccepted(c)
	c.followUps = newFollowUps(c)
	c.claims = newClaims(c)
	c.news = s.Wakeups.Listen(store.Topics{Tasks: true, Config: true, FollowUps: true})
	c.closed = make(chan struct{})
	go c.listen()
	return c
}

// closePatience bounds how long Close waits for a database that doesn't answer.
const closePatience = 5 * time.Second

// Close waits until everything that was handed over is written.
func (c *Committer) Close() {
	defer time.AfterFunc(closePatience, c.giveUp).Stop()
	c.replaced.Drain()
	c.keyed.Drain()
	c.dependent.Drain()
	c.heldKeys.drain()
	c.accepted.extendAll()
	c.writes.Drain()
	c.lookups.Drain()
	c.freed.Drain()
	c.hear()
	c.followUps.close()
	c.closing.Do(func() { close(c.closed) })
}

// write is one change on its way into a transaction. One of its last three fields is set.
type write struct {
	key    store.TypeKey
	insert *submission
	extend *extension
	settle *ending
}

func (w *write) size() int {
	switch {
	case w.insert != nil:
		return w.insert.size()
	case w.settle != nil:
		return len(w.settle.Outcome.Output) + w.settle.Outcome.SpawnBytes()
	default:
		return len(w.extend.Checkpoint.Document)
	}
}

func (w *write) linger() time.Duration {
	switch {
	case w.insert != nil:
		return submitLinger
	case w.settle != nil && !w.settle.until.IsZero():
		return reportLinger
	case w.settle != nil && fewSiblings(w.settle.Lease.Options.Child): // their parent waits
		return submitLinger
	}
	return settleLinger
}

// fewSiblings reports whether a task is one of at most 100 children, so that the time of one
// transaction counts.
func fewSiblings(child *asyncflow.Child) bool { return child != nil && child.Count <= 100 }

// add queues changes of one type for writing.
func (c *Committer) add(key store.TypeKey, writes ...*write) {
	if len(writes) > 0 {
		c.writes.Add(c.store.Home(key.Tenant), writes...)
	}
}

// ending is a lease that ends.
type ending struct {
	store.Ending
	write write
	done  func(*ending) // called once, with the result; it must not block
	// until is when the caller stops waiting. The write doesn't begin after that; zero: no limit.
	until time.Time
}

// extension moves the end of a lease.
type extension struct {
	store.Extension
	done  func(stands bool, err error)
	until time.Time // from when on nobody waits for it; zero: never
}

// releaseKeys puts blocked tasks of flow keys in line after the end of other tasks of these keys.
func (c *Committer) releaseKeys(ctx context.Context, key store.TypeKey, keys []string) {
	t, err := c.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		return
	}
	err = c.store.ReleaseKeys(ctx, t, keys)
	until := time.Now().Add(settlePatience)
	for pause := firstTry; store.IsHeld(err) && time.Now().Before(until); {
		sleep.For(ctx, pause)
		pause = min(2*pause, lockPause)
		c.failedWrites.probe(func() { err = c.store.ReleaseKeys(ctx, t, keys) })
	}
}

// unanswered is the error of a write that was not begun because the database didn't answer in time.
func unanswered(message string) error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second,
		Message: message}
}
