package thumbnails

import "sync"

// pool runs jobs on a fixed number of goroutines behind a queue of fixed length,
// so that a burst of deliveries is pushed back instead of filling the memory.
type pool struct {
	jobs    chan func()
	running sync.WaitGroup

	mu     sync.RWMutex // guards closed, and jobs against a send after its close
	closed bool
}

func newPool(parallel, queue int) *pool {
	p := &pool{jobs: make(chan func(), queue)}
	for range parallel {
		p.running.Go(func() {
			for job := range p.jobs {
				job()
			}
		})
	}
	return p
}

// try hands job over and tells whether it was taken: false when the queue is
// full or the pool closed.
func (p *pool) try(job func()) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return false
	}
	select {
	case p.jobs <- job:
		return true
	default:
		return false
	}
}

// close takes no more jobs; those already taken are still run. Call it once.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	close(p.jobs)
}

// wait returns when the last job of a closed pool has ended.
func (p *pool) wait() { p.running.Wait() }
