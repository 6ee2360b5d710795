package dispatcher

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// crew runs attempts in goroutines that are kept for the next: an attempt calls deeply, and
// in a new goroutine the stack has to grow for it again each time, which was an eighth of
// the node's CPU. The one that was busy last goes on first, as its stack is still in the
// processor's cache; those that aren't needed for a while end.
type crew struct {
	mu        sync.Mutex
	idle      []chan func() // of goroutines that have nothing to do, each with room for one; the last one was busy last
	unneeded  int           // the fewest that were idle since the last look
	looking   bool          // a look is to come
	dismissed bool
}

const (
	// crewLook is how often it is looked how many goroutines are needed.
	crewLook = 30 * time.Second
	// keptStack is how many bytes of its stack a goroutine holds while it is idle: a
	// collection takes half of a stack away of which less than a quarter is used, and the
	// next attempt would have it grow again.
	keptStack = 4 << 10
)

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
	c.unneeded = max(0, min(c.unneeded, last))
	if last < 0 {
		return nil
	}
	work := c.idle[last]
	c.idle = c.idle[:last]
	return work
}

func (c *crew) serve(work chan func(), f func()) {
	var kept [keptStack]byte
	for ok := true; ok; f, ok = <-work {
		f()
		if !c.rest(work) {
			break
		}
	}
	runtime.KeepAlive(&kept)
}

// rest takes in that a goroutine has nothing to do; false: nor will it have.
func (c *crew) rest(work chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dismissed {
		return false
	}
	c.idle = append(c.idle, work)
	if !c.looking {
		c.looking = true
		time.AfterFunc(crewLook, c.look)
	}
	return true
}

// look ends the goroutines that nobody has needed since the last look.
func (c *crew) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, work := range c.idle[:c.unneeded] {
		close(work)
	}
	c.idle = slices.Delete(c.idle, 0, c.unneeded)
	c.unneeded = len(c.idle)
	if c.looking = len(c.idle) > 0; c.looking {
		time.AfterFunc(crewLook, c.look)
	}
}

// dismiss ends the goroutines that have nothing to do, and the others when they are done.
func (c *crew) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissed = true
	for _, work := range c.idle {
		close(work)
	}
	c.idle, c.unneeded = nil, 0
}
