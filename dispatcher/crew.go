package dispatcher

import (
	"runtime"
	"sync"
)

// crew runs attempts in goroutines that are kept for the next: an attempt calls deeply, and
// in a new goroutine the stack has to grow for it again each time, which was an eighth of
// the node's CPU. There are as many as there were attempts at once; one that has nothing to
// do costs its stack. The one that was busy last goes on first, as its stack is still in the
// processor's cache.
type crew struct {
	mu        sync.Mutex
	idle      []chan func() // of goroutines that have nothing to do; the last one was busy last
	dismissed bool
}

// do runs f in a goroutine: one that has nothing to do, or a new one.
func (c *crew) do(f func()) {
	if work := c.free(); work != nil {
		work <- f // there is room
		return
	}
	go c.serve(make(chan func(), 1), f)
}

// free returns the way to a goroutine that has nothing to do; nil: there is none.
func (c *crew) free() chan func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		return nil
	}
	work := c.idle[last]
	c.idle = c.idle[:last]
	return work
}

// keptStack is how many bytes of its stack a goroutine holds while it waits: a collection
// takes half of a stack away that is used by less than a quarter, and the next attempt
// would have it grow again.
const keptStack = 4 << 10

func (c *crew) serve(work chan func(), f func()) {
	var kept [keptStack]byte
	for ok := true; ok; f, ok = <-work {
		f()
		if !c.wait(work) {
			break
		}
	}
	runtime.KeepAlive(&kept)
}

// wait takes in that a goroutine has nothing to do; false: nor will it have.
func (c *crew) wait(work chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dismissed {
		c.idle = append(c.idle, work)
	}
	return !c.dismissed
}

// dismiss ends the goroutines that have nothing to do, and the others when they are done.
func (c *crew) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissed = true
	for _, work := range c.idle {
		close(work)
	}
	c.idle = nil
}
