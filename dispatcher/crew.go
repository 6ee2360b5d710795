package dispatcher

// crew runs attempts in goroutines that are kept for the next: an attempt calls deeply, and
// in a new goroutine the stack has to grow for it again each time, which was an eighth of
// the node's CPU. There are as many as there were attempts at once; one that has nothing to
// do costs its stack.
type crew struct {
	work chan func()
	done chan struct{} // closed when there is nothing to do any more
}

func newCrew() *crew { return &crew{make(chan func()), make(chan struct{})} }

// do runs f in a goroutine: one that has nothing to do, or a new one.
func (c *crew) do(f func()) {
	select {
	case c.work <- f:
	default:
		go c.serve(f)
	}
}

func (c *crew) serve(f func()) {
	for {
		f()
		select {
		case f = <-c.work:
		case <-c.done:
			return
		}
	}
}

// dismiss ends the goroutines that have nothing to do, and the others when they are done.
func (c *crew) dismiss() { close(c.done) }
