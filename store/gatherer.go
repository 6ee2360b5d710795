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
// each kind of item that doesn't wait for others, as larger batches cost less. An
// item belongs to exactly one batch.
type gatherer[T any] struct {
	ctx     context.Context // of the writing: no caller's
	writers int             // how many batches of one type may be under way
	most    int             // items of a batch
	linger  time.Duration
	write   func(context.Context, TypeKey, []T)

	mu      sync.Mutex
	queues  map[TypeKey]*queue[T]
	pending sync.WaitGroup // items not yet written
}

type queue[T any] struct {
	items   []T
	writing int
	last    time.Time // when the last batch began
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
	q.items = append(q.items, items...)
	g.schedule(key, q)
}

// schedule starts what may be written now. g.mu is held.
func (g *gatherer[T]) schedule(key TypeKey, q *queue[T]) {
	for q.writing < g.writers && len(q.items) > 0 {
		if rest := g.linger - time.Since(q.last); rest > 0 && len(q.items) < g.most {
			if !q.timer {
				q.timer = true
				time.AfterFunc(rest, func() { g.due(key, q) })
			}
			return
		}
		n := min(len(q.items), g.most)
		batch := q.items[:n:n]
		q.items = q.items[n:]
		if len(q.items) == 0 {
			q.items = nil
		}
		q.writing++
		q.last = time.Now()
		go g.flush(key, q, batch)
	}
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
	q.writing--
	g.schedule(key, q)
}

// drain waits until everything handed over is written.
func (g *gatherer[T]) drain() { g.pending.Wait() }
