package dispatcher

import (
	"context"
	"sync"
	"time"
)

// batcher makes batches out of single items: while one batch is written, the next one fills. An
// item that comes alone is written at once. Under load, a batch begins when the linger of its most
// urgent item is over, counted from the begin of the last batch, or when the batch is full. By
// default one batch of a key is written at a time: larger batches cost less per item. Batches of
// long items don't, so up to three are written at a time: while one waits for the disk, the next
// one is on the network.
type batcher[K comparable, T any] struct {
	ctx     context.Context // of all writing; independent of callers
	write   func(context.Context, K, []T)
	writers int                   // the most batches of a key that are written at a time
	linger  func(T) time.Duration // how long an item may wait
	size    func(T) int           // bytes of an item

	mu      sync.Mutex
	queues  map[K]*queue[T]
	pending sync.WaitGroup // for items
}

const (
	// batchBytes bounds a batch, unless one item is longer.
	batchBytes = 1 << 20
	// Batches of at least longBatch bytes are written longWriters at a time.
	longBatch   = 128 << 10
	longWriters = 3
)

type queue[T any] struct {
	items   []T
	bytes   int           // of the items
	linger  time.Duration // of the most urgent one
	writing int
	last    time.Time // when the last batch began
	due     time.Time // when a timer starts the next one; zero: no timer is set
}

func newBatcher[K comparable, T any](
	ctx context.Context, write func(context.Context, K, []T),
) *batcher[K, T] {
	return &batcher[K, T]{ctx: ctx, write: write, writers: 1, queues: map[K]*queue[T]{},
		linger: func(T) time.Duration { return submitLinger }, size: func(T) int { return 0 }}
}

// add queues items. write gets each of them once, and answers its caller.
func (b *batcher[K, T]) add(key K, items ...T) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.queues[key]
	if q == nil {
		q = &queue[T]{}
		b.queues[key] = q
	}
	b.pending.Add(len(items))
	for _, item := range items {
		if linger := b.linger(item); len(q.items) == 0 || linger < q.linger {
			q.linger = linger
		}
		q.items = append(q.items, item)
		q.bytes += b.size(item)
	}
	b.schedule(key, q)
}

// schedule starts the batches that may be written now. b.mu is held.
func (b *batcher[K, T]) schedule(key K, q *queue[T]) {
	for len(q.items) > 0 && q.writing < b.writersOf(q) {
		full := len(q.items) >= commitMost || q.bytes >= batchBytes
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
	if next := q.bytes * min(len(q.items), commitMost) / len(q.items); next >= longBatch {
		return max(b.writers, longWriters)
	}
	return b.writers
}

// take takes a batch out of a queue that has items.
func (b *batcher[K, T]) take(q *queue[T]) []T {
	n, bytes := 1, b.size(q.items[0])
	for n < min(len(q.items), commitMost) {
		size := b.size(q.items[n])
		if bytes+size > batchBytes {
			break
		}
		n, bytes = n+1, bytes+size
	}
	batch := q.items[:n:n]
	q.items, q.bytes, q.last = q.items[n:], q.bytes-bytes, time.Now()
	if len(q.items) == 0 {
		q.items = nil
	}
	return batch
}

func (b *batcher[K, T]) flush(key K, q *queue[T], batch []T) {
	b.write(b.ctx, key, batch)
	b.pending.Add(-len(batch))
	b.mu.Lock()
	defer b.mu.Unlock()
	q.writing--
	b.schedule(key, q)
}

// drain waits until all queued items are written.
func (b *batcher[K, T]) drain() { b.pending.Wait() }

// forget drops the queues of keys that are gone, unless they have items or a write under way.
func (b *batcher[K, T]) forget(gone func(K) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, q := range b.queues {
		if len(q.items) == 0 && q.writing == 0 && gone(key) {
			delete(b.queues, key)
		}
	}
}
