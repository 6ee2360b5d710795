package pool

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// Pool runs attempts in goroutines that are reused. An attempt calls deeply, and the stack of a new
// goroutine would grow for it each time, which was an eighth of the node's CPU. The goroutine that
// was busy last goes first, because its stack is still in the processor's cache. Goroutines that
// aren't needed for a while end. The zero Pool is ready for use.
type Pool struct {
	mu sync.Mutex
	// The channels of idle goroutines, each with a buffer for one; the last one was busy last.
	idle      []chan func()
	unneeded  int  // the fewest that were idle since the last look
	looking   bool // a timer will call look
	dismissed bool
}

const (
	// poolLook is how often the pool checks how many goroutines are needed.
	poolLook = 30 * time.Second
	// keptStack is how many bytes of its stack a goroutine uses while it is idle. The garbage
	// collector halves a stack with less than a quarter in use, and the next attempt would grow it
	// again.
	keptStack = 4 << 10
)

// Do runs f in an idle goroutine, or a new one.
func (p *Pool) Do(f func()) {
	if work := p.free(); work != nil {
		work <- f // its buffer is empty
		return
	}
	go p.serve(make(chan func(), 1), f)
}

// free returns the channel of an idle goroutine; nil: there is none.
func (p *Pool) free() chan func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	p.unneeded = max(0, min(p.unneeded, last))
	if last < 0 {
		return nil
	}
	work := p.idle[last]
	p.idle = p.idle[:last]
	return work
}

func (p *Pool) serve(work chan func(), f func()) {
	var kept [keptStack]byte
	for ok := true; ok; f, ok = <-work {
		f()
		if !p.rest(work) {
			break
		}
	}
	runtime.KeepAlive(&kept)
}

// rest marks a goroutine as idle. It returns false if the goroutine should end.
func (p *Pool) rest(work chan func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dismissed {
		return false
	}
	p.idle = append(p.idle, work)
	if !p.looking {
		p.looking = true
		time.AfterFunc(poolLook, p.look)
	}
	return true
}

// look ends the goroutines that were not needed since the last look.
func (p *Pool) look() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, work := range p.idle[:p.unneeded] {
		close(work)
	}
	p.idle = slices.Delete(p.idle, 0, p.unneeded)
	p.unneeded = len(p.idle)
	if p.looking = len(p.idle) > 0; p.looking {
		time.AfterFunc(poolLook, p.look)
	}
}

// Dismiss ends the idle goroutines now, and the busy ones when they are done.
func (p *Pool) Dismiss() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dismissed = true
	for _, work := range p.idle {
		close(work)
	}
	p.idle = nil
	p.unneeded = 0
}
