package store

import (
	"context"
	"sync"
	"time"
)

// A gatherer makes batches out of single items: while one batch of a task type
// is written, the next one fills. An item on its own is written at once; under
// load a batch waits until linger has passed since the last one began, or until
// it is full. At most so many batches of one type are written at a time: one for
// each kind of item that doesn't wait for others, as larger batches cost less. Batches
// of long items don't, so several are written at a time: while one waits for the disk,
// the next one is read. An item belongs to exactly one batch.
type gatherer[T any] struct {
	ctx     context.Context // of the writing: no caller's
	writers int             // how many batches of one type may be under way
	most    int             // items of a batch
	linger  time.Duration
	write   func(context.Context, TypeKey, []T)
	size    func(T) int // bytes of an item, if it may be long; or nil
	// await, unless it is nil, waits until a batch may be written. It asks what is in the batch,
	// which takes in what comes meanwhile.
	await func(key TypeKey, batch func() []T)
	// others tells, of so many items that aren't written yet, whether other nodes write such
	// batches, too, more items are to come, and nobody is short of what these hold until they are
	// written; or nil, for never.
	others func(unwritten int) bool

	mu        sync.Mutex
	queues    map[TypeKey]*queue[T]
	unwritten int            // items
	pending   sync.WaitGroup // for the same
}

const (
	// batchBytes bounds a batch, unless one item is longer.
	batchBytes = 1 << 20
	// Beside other nodes a batch lingers for linger * (1 + items of the last one / lingerItems),
	// lingerMost at most: each node gets a part of the items, and the database the batches of
	// all.
	lingerItems = 20
	lingerMost  = 40 * time.Millisecond
	// longBatch is from how many bytes on batches are written longWriters at a time.
	longBatch   = 128 << 10
	longWriters = 3
)

type queue[T any] struct {
	items   []T
	bytes   int // of the items
	writing int
	awaits  bool      // a batch waits, and isn't taken yet: no other one begins
	last    time.Time // when the last batch began
	taken   int       // items that it had
	timer   bool      // a flush is scheduled
}

func newGatherer[T any](ctx context.Context, writers, most int, linger time.Duration, write func(context.Context, TypeKey, []T)) *gatherer[T] {
	return &gatherer[T]{ctx: ctx, writers: writers, most: most, linger: linger, write: write, queues: map[TypeKey]*queue[T]{}}
}

// add hands items over. write gets them on a context of its own, and tells each
// item's owner what became of it.
func (g *gatherer[T]) add(key TypeKey, items ...T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queues[key]
	if q == nil {
		q = &queue[T]{}
		g.queues[key] = q
	}
	g.pending.Add(len(items))
	g.unwritten += len(items)
	q.items = append(q.items, items...)
	for _, item := range items {
		q.bytes += g.sizeOf(item)
	}
	g.schedule(key, q)
}

// schedule starts what may be written now. g.mu is held.
func (g *gatherer[T]) schedule(key TypeKey, q *queue[T]) {
	for len(q.items) > 0 && q.writing < g.writersOf(q) && !q.awaits {
		full := len(q.items) >= g.most || q.bytes >= batchBytes
		if rest := g.lingerOf(q) - time.Since(q.last); rest > 0 && !full {
			if !q.timer {
				q.timer = true
				time.AfterFunc(rest, func() { g.due(key, q) })
			}
			return
		}
		q.writing++
		if g.await != nil {
			q.awaits = true
			go g.flushAwaited(key, q)
			return
		}
		go g.flush(key, q, g.take(q))
	}
}

// flushAwaited is flush for what is there when it may be written.
func (g *gatherer[T]) flushAwaited(key TypeKey, q *queue[T]) {
	g.await(key, func() []T {
		g.mu.Lock()
		defer g.mu.Unlock()
		n, _ := g.next(q)
		return q.items[:n]
	})
	g.mu.Lock()
	q.awaits = false
	batch := g.take(q)
	g.schedule(key, q)
	g.mu.Unlock()
	g.flush(key, q, batch)
}

func (g *gatherer[T]) lingerOf(q *queue[T]) time.Duration {
	if g.others == nil || !g.others(g.unwritten) {
		return g.linger
	}
	return min(g.linger*time.Duration(lingerItems+q.taken)/lingerItems, lingerMost)
}

// writersOf returns how many batches may be under way when the next one begins.
func (g *gatherer[T]) writersOf(q *queue[T]) int {
	if next := q.bytes * min(len(q.items), g.most) / len(q.items); next >= longBatch {
		return longWriters
	}
	return g.writers
}

// next returns how many items of a queue that has some make the next batch, and their bytes.
func (g *gatherer[T]) next(q *queue[T]) (n, bytes int) {
	n, bytes = 1, g.sizeOf(q.items[0])
	for n < min(len(q.items), g.most) {
		size := g.sizeOf(q.items[n])
		if bytes+size > batchBytes {
			break
		}
		n, bytes = n+1, bytes+size
	}
	return n, bytes
}

// take takes a batch out of a queue that has items.
func (g *gatherer[T]) take(q *queue[T]) []T {
	n, bytes := g.next(q)
	q.last, q.taken = time.Now(), n
	batch := q.items[:n:n]
	q.items, q.bytes = q.items[n:], q.bytes-bytes
	if len(q.items) == 0 {
		q.items = nil
	}
	return batch
}

func (g *gatherer[T]) sizeOf(item T) int {
	if g.size == nil {
		return 0
	}
	return g.size(item)
}

func (g *gatherer[T]) due(key TypeKey, q *queue[T]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q.timer = false
	g.schedule(key, q)
}

func (g *gatherer[T]) flush(key TypeKey, q *queue[T], batch []T) {
	g.write(g.ctx, key, batch)
	g.pending.Add(-len(batch))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unwritten -= len(batch)
	q.writing--
	g.schedule(key, q)
}

// drain waits until everything handed over is written.
func (g *gatherer[T]) drain() { g.pending.Wait() }
