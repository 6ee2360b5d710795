package batch

import "sync"

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
