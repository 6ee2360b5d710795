package listener

// Strangers must not keep callers out by opening connections. So a connection is anonymous until
// one of its calls is let in by a token (Identify), and there is a limit of their own for anonymous
// connections. When that limit or the limit of all connections is reached, a new connection evicts
// an anonymous one: the first in the order of their last answers that waits for its client. For one
// without an answer the time of its accept counts. Bytes that trickle in don't renew it.
//
// A connection waits while the server reads from it, and from an answer on: also if its client sent
// half a request, or doesn't take the answer. It doesn't wait while its request is handled.

// Identify ends the anonymity of a connection: a token let a call in. It may be called more than
// once, while the call is being handled.
func (c *Conn) Identify() {
	if c.identified.Load() {
		return
	}
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	c.identified.Store(true)
	l.forget(c)
}

// evict ends the count of an anonymous connection, which the caller closes; nil: none waits.
func (l *Listener) evict() *Conn {
	for e := l.anonymous.Front(); e != nil; e = e.Next() {
		if c := e.Value.(*Conn); c.waits {
			l.remove(c)
			return c
		}
	}
	return nil
}

// forget takes a connection off the anonymous ones, if it is there.
func (l *Listener) forget(c *Conn) {
	if c.place != nil {
		l.anonymous.Remove(c.place)
		c.place = nil
	}
}

// renew moves an anonymous connection, which gets an answer, to the end of the order.
func (c *Conn) renew() {
	if c.identified.Load() {
		return
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.waits = true
	if c.place != nil {
		c.listener.anonymous.MoveToBack(c.place)
	}
}

// setWaits notes whether the server waits for the client. It reports whether the connection still
// counts: an evicted one is closed.
func (c *Conn) setWaits(waits bool) (counts bool) {
	if c.identified.Load() {
		return true
	}
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	c.waits = waits
	return !c.left
}
