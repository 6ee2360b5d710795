package dispatcher

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// batcher makes batches out of single items: while one batch is written, the next one fills. An
// item that comes alone is written at once. Under load, a batch begins when its most urgent item
// has lingered since the last batch began, or when the batch is full. By default one batch of a key
// is written at a time: larger batches cost less per item. Batches of long items don't, so up to
// three are written at a time: while one waits for the disk, the next one travels. If more items
// wait than a batch takes, the tenants take turns: one that floods delays itself.
type batcher[K comparable, T any] struct {
	ctx     context.Context // of all writing; independent of callers
	write   func(context.Context, K, []T)
	writers int                   // the most batches of a key that are written at a time
	linger  func(T) time.Duration // how long an item may wait
	size    func(T) int           // bytes of an item
	tenant  func(T) string        // the tenant of an item
	tenants int                   // the most tenants of a batch

	mu      sync.Mutex
	queues  map[K]*queue[T]
	tidyAt  int    // at this number of queues, those that are idle are dropped
	pending *count // of items
}

const (
	// batchBytes bounds a batch, unless one item is longer.
	batchBytes = 1 << 20
	// Batches of at least longBatch bytes are written longWriters at a time.
	longBatch   = 128 << 10
	longWriters = 3
	// tidyLeast is how many queues are kept in any case. A queue is idle after tidyAfter, which is
	// longer than any item lingers.
	tidyLeast = 64
	tidyAfter = time.Second
	// turnItems and turnBytes bound the turn of a tenant.
	turnItems = 50
	turnBytes = batchBytes / 8
	// batchTenants bounds the tenants of a batch. Its transaction locks some ten tables and indexes of
	// each until it ends; Postgres has room for 6,400 locks by default, in all transactions together.
	batchTenants = 32
)

type queue[T any] struct {
	lines   []*line[T] // those of the tenants that have items; the first one's turn is next
	items   int
	bytes   int           // of the items
	linger  time.Duration // of the most urgent one
	writing int
	last    time.Time // when the last batch began
	due     time.Time // when a timer starts the next one; zero: no timer is set
}

// line has the items of a tenant in the order in which they came.
type line[T any] struct {
	tenant string
	items  []T
}

func newBatcher[K comparable, T any](
	ctx context.Context, write func(context.Context, K, []T),
) *batcher[K, T] {
	return &batcher[K, T]{ctx: ctx, write: write, writers: 1, queues: map[K]*queue[T]{},
		tidyAt: tidyLeast, pending: newCount(), linger: func(T) time.Duration { return submitLinger },
		size: func(T) int { return 0 }, tenant: func(T) string { return "" }, tenants: batchTenants}
}

// add queues items. write gets each of them once, and answers its caller.
func (b *batcher[K, T]) add(key K, items ...T) {
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
		if linger := b.linger(item); q.items == 0 || linger < q.linger {
			q.linger = linger
		}
		l := q.line(b.tenant(item))
		l.items = append(l.items, item)
		q.items, q.bytes = q.items+1, q.bytes+b.size(item)
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
func (b *batcher[K, T]) schedule(key K, q *queue[T]) {
	for q.items > 0 && q.writing < b.writersOf(q) {
		full := q.items >= commitMost || q.bytes >= batchBytes
		if rest := q.linger - time.Since(q.last); rest > 0 && !full {
			if due := time.Now().Add(rest); q.due.IsZero() || due.Before(q.due) {
				q.due = due
				time.AfterFunc(rest, func() { b.timeUp(key, q) })
			}
			return
		}
		q.writing++
		go b.flush(key, q, b.take(q))
	}
}

func (b *batcher[K, T]) timeUp(key K, q *queue[T]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q.due = time.Time{}
	b.schedule(key, q)
}

// writersOf returns how many batches may be under way when the next one begins.
func (b *batcher[K, T]) writersOf(q *queue[T]) int {
	if next := q.bytes * min(q.items, commitMost) / q.items; next >= longBatch {
		return max(b.writers, longWriters)
	}
	return b.writers
}

// take takes a batch out of a queue that has items.
func (b *batcher[K, T]) take(q *queue[T]) []T {
	batch, bytes := make([]T, 0, min(q.items, commitMost)), 0
	n := min(len(q.lines), b.tenants)
	lines, others := slices.Clone(q.lines[:n]), q.lines[n:]
	for full := false; len(lines) > 0 && !full; {
		l := lines[0]
		lines = lines[1:]
		var turn int // bytes
		for n := 0; n < turnItems && turn < turnBytes && len(l.items) > 0 && !full; n++ {
			size := b.size(l.items[0])
			if full = len(batch) == commitMost || len(batch) > 0 && bytes+size > batchBytes; !full {
				batch, l.items = append(batch, l.items[0]), l.items[1:]
				bytes, turn = bytes+size, turn+size
			}
		}
		if len(l.items) > 0 {
			lines = append(lines, l)
		}
	}
	q.lines = append(slices.Clone(others), lines...)
	q.items, q.bytes, q.last = q.items-len(batch), q.bytes-bytes, time.Now()
	return batch
}

func (b *batcher[K, T]) flush(key K, q *queue[T], batch []T) {
	b.write(b.ctx, key, batch)
	b.pending.add(-len(batch))
	b.mu.Lock()
	defer b.mu.Unlock()
	q.writing--
	b.schedule(key, q)
}

// drain waits until all queued items are written.
func (b *batcher[K, T]) drain() { b.pending.await() }

// tidy drops the idle queues before another one is added, if there are many. b.mu is held.
func (b *batcher[K, T]) tidy() {
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
