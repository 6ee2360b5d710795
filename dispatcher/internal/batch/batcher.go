package batch

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Batcher makes batches out of single items: while one batch is written, the next one fills. An
// item that comes alone is written at once. Under load, a batch begins when its most urgent item
// lingered since the last batch began, or when the batch is full. By default one batch of a key is
// written at a time: larger batches cost less per item. Batches of long items don't, so up to three
// are written at a time: while one waits for the disk, the next one travels. If more items wait
// than a batch takes, the tenants take turns: one that floods delays itself.
type Batcher[K comparable, T any] struct {
	ctx   context.Context // of all writing; independent of callers
	write func(context.Context, K, []T)

	// Set these before the first Add.
	Writers int                   // the most batches of a key that are written at a time
	Linger  func(T) time.Duration // how long an item may wait
	Size    func(T) int           // bytes of an item
	Tenant  func(T) string        // the tenant of an item
	Tenants int                   // the most tenants of a batch

	mu      sync.Mutex
	queues  map[K]*queue[T]
	tidyAt  int    // at this number of queues, idle ones are dropped
	pending *count // of items
}

const (
	// MaxItems bounds a batch.
	MaxItems = 500
	// MaxBytes bounds a batch, unless one item is longer.
	MaxBytes = 1 << 20
	// DefaultLinger is how long an item lingers where nothing else is set.
	DefaultLinger = time.Millisecond
	// Batches of at least longBatch bytes are written longWriters at a time.
	longBatch   = 128 << 10
	longWriters = 3
	// tidyLeast is how many queues are kept in any case. A queue is idle after tidyAfter, which is
	// longer than any item lingers.
	tidyLeast = 64
	tidyAfter = time.Second
	// turnItems and turnBytes bound the turn of a tenant.
	turnItems = 50
	turnBytes = MaxBytes / 8
	// batchTenants bounds the tenants of a batch. Its transaction locks some ten tables and indexes
	// of each until it ends; Postgres keeps room for 6,400 locks by default, in all transactions
	// together.
	batchTenants = 32
)

type queue[T any] struct {
	lines   []*line[T] // of the tenants with items; the first one's turn is next
	items   int
	bytes   int           // of the items
	linger  time.Duration // of the most urgent one
	writing int
	last    time.Time // when the last batch began
	due     time.Time // when a timer starts the next one; zero: no timer is set
}

// line holds the items of a tenant in the order in which they came.
type line[T any] struct {
	tenant string
	items  []T
}

// New returns a batcher whose batches write gets, with ctx. Items linger for DefaultLinger, count
// no bytes, and belong to one tenant.
func New[K comparable, T any](
	ctx context.Context, write func(context.Context, K, []T),
) *Batcher[K, T] {
	return &Batcher[K, T]{
		ctx:     ctx,
		write:   write,
		Writers: 1,
		Linger:  func(T) time.Duration { return DefaultLinger },
		Size:    func(T) int { return 0 },
		Tenant:  func(T) string { return "" },
		Tenants: batchTenants,
		queues:  map[K]*queue[T]{},
		tidyAt:  tidyLeast,
		pending: newCount(),
	}
}

// Add queues items. write gets each of them once, and answers its caller.
func (b *Batcher[K, T]) Add(key K, items ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[key]
	if q == nil {
		b.tidy()
		q = &queue[T]{}
		b.queues[key] = q
	}
	b.pending.add(len(items))
	for _, item := range items {
		if linger := b.Linger(item); q.items == 0 || linger < q.linger {
			q.linger = linger
		}
		l := q.line(b.Tenant(item))
		l.items = append(l.items, item)
		q.items++
		q.bytes += b.Size(item)
	}
	b.schedule(key, q)
}

// line returns the line of a tenant.
func (q *queue[T]) line(tenant string) *line[T] {
	for _, l := range slices.Backward(q.lines) { // mostly it is the last one
		if l.tenant == tenant {
			return l
		}
	}
	q.lines = append(q.lines, &line[T]{tenant: tenant})
	return q.lines[len(q.lines)-1]
}

// schedule starts the batches that may be written now. b.mu is held.
func (b *Batcher[K, T]) schedule(key K, q *queue[T]) {
	for q.items > 0 && q.writing < b.writersOf(q) {
		filled := q.items >= MaxItems || q.bytes >= MaxBytes
		if rest := q.linger - time.Since(q.last); rest > 0 && !filled {
			if due := time.Now().Add(rest); q.due.IsZero() || due.Before(q.due) {
				q.due = due
				time.AfterFunc(rest, func() { b.timeUp(key, q) })
			}
			return
		}
		q.writing++
		go b.flush(key, q, b.nextBatch(q))
	}
}

func (b *Batcher[K, T]) timeUp(key K, q *queue[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q.due = time.Time{}
	b.schedule(key, q)
}

// writersOf returns how many batches may be under way when the next one begins.
func (b *Batcher[K, T]) writersOf(q *queue[T]) int {
	if next := q.bytes * min(q.items, MaxItems) / q.items; next >= longBatch {
		return max(b.Writers, longWriters)
	}
	return b.Writers
}

// nextBatch takes a batch out of a queue with items.
func (b *Batcher[K, T]) nextBatch(q *queue[T]) []T {
	batch := make([]T, 0, min(q.items, MaxItems))
	bytes := 0
	n := min(len(q.lines), b.Tenants)
	lines := slices.Clone(q.lines[:n])
	waiting := q.lines[n:]
	for filled := false; len(lines) > 0 && !filled; {
		l := lines[0]
		lines = lines[1:]
		var turn int // bytes
		for n := 0; n < turnItems && turn < turnBytes && len(l.items) > 0; n++ {
			size := b.Size(l.items[0])
			filled = len(batch) == MaxItems || len(batch) > 0 && bytes+size > MaxBytes
			if filled {
				break
			}
			batch = append(batch, l.items[0])
			l.items = l.items[1:]
			bytes += size
			turn += size
		}
		if len(l.items) > 0 {
			lines = append(lines, l)
		}
	}
	q.lines = append(slices.Clone(waiting), lines...)
	q.items -= len(batch)
	q.bytes -= bytes
	q.last = time.Now()
	return batch
}

func (b *Batcher[K, T]) flush(key K, q *queue[T], batch []T) {
	b.write(b.ctx, key, batch)
	b.pending.add(-len(batch))
	b.mu.Lock()
	defer b.mu.Unlock()
	q.writing--
	b.schedule(key, q)
}

// Drain waits until all queued items are written.
func (b *Batcher[K, T]) Drain() { b.pending.await() }

// AddPending makes Drain wait for n more items, which are written elsewhere. A negative n says that
// they are written.
func (b *Batcher[K, T]) AddPending(n int) { b.pending.add(n) }

// tidy drops the idle queues before another one is added, if there are many. b.mu is held.
func (b *Batcher[K, T]) tidy() {
	if len(b.queues) < b.tidyAt {
		return
	}
	maps.DeleteFunc(b.queues, func(_ K, q *queue[T]) bool {
		return q.items == 0 && q.writing == 0 && time.Since(q.last) > tidyAfter
	})
	b.tidyAt = max(tidyLeast, 2*len(b.queues))
}

// count counts what isn't written yet. Unlike that of a WaitGroup, it may rise from zero while
// somebody waits.
type count struct {
	mu   sync.Mutex
	n    int
	none *sync.Cond
}

func newCount() *count {
	c := &count{}
	c.none = sync.NewCond(&c.mu)
	return c
}

func (c *count) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n += n; c.n == 0 {
		c.none.Broadcast()
	}
}

// await waits until the count is zero.
func (c *count) await() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n > 0 {
		c.none.Wait()
	}
}
