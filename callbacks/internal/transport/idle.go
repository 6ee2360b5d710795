package transport

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

const (
	// idleTime is how long a connection is kept without a request.
	idleTime = 90 * time.Second
	// sweepInterval is how often the idle connections are checked.
	sweepInterval = 15 * time.Second
)

// Idle is the pool of connections that a node keeps for later requests. Its mutex is held for
// moments only: no connection is checked or closed under it.
type Idle struct {
	perAddress, total int

	mu       sync.Mutex
	by       map[address][]*conn // the connection that became idle last is the last one
	all      list.List           // of *conn; the one that became idle first is in front
	sweeping bool                // a sweep is to come
}

// NewIdle returns a pool with bounds for the connections of an address, and for all of them.
func NewIdle(perAddress, total int) *Idle {
	return &Idle{perAddress: perAddress, total: total, by: map[address][]*conn{}}
}

// take returns an idle connection that is still good, or nil: a worker, or something on the way,
// may have closed it meanwhile.
func (i *Idle) take(to address) *conn {
	for {
		c := i.pop(to)
		if c == nil || c.quiet() {
			return c
		}
		c.cut()
	}
}

// pop removes the connection that became idle last: it is the least likely to be closed, and the
// others get old.
func (i *Idle) pop(to address) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := i.by[to]
	if len(kept) == 0 {
		return nil
	}
	c := kept[len(kept)-1]
	i.remove(c)
	return c
}

// put adds a connection. If there are too many, it closes the one that is idle longest.
func (i *Idle) put(c *conn) {
	if over := i.add(c); over != nil {
		over.cut()
	}
}

func (i *Idle) add(c *conn) (over *conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c.since = time.Now()
	c.element = i.all.PushBack(c)
	kept := append(i.by[c.to], c)
	i.by[c.to] = kept
	if !i.sweeping {
		i.sweeping = true
		time.AfterFunc(sweepInterval, i.sweep)
	}
	switch {
	case len(kept) > i.perAddress:
		over = kept[0]
	case i.all.Len() > i.total:
		over = i.all.Front().Value.(*conn)
	default:
		return nil
	}
	i.remove(over)
	return over
}

// remove removes a connection. The caller holds the mutex.
func (i *Idle) remove(c *conn) {
	i.all.Remove(c.element)
	c.element = nil
	kept := i.by[c.to]
	at := len(kept) - 1 // mostly it is the last one
	for kept[at] != c {
		at--
	}
	kept = slices.Delete(kept, at, at+1)
	if len(kept) == 0 {
		delete(i.by, c.to)
		return
	}
	i.by[c.to] = kept
}

// sweep closes the connections that are idle too long, and connections that workers closed, so that
// they don't occupy sockets.
func (i *Idle) sweep() {
	now := time.Now()
	i.closeIf(func(c *conn) bool { return now.Sub(c.since) > idleTime })
	over := map[*list.Element]bool{}
	for _, element := range i.elements() {
		// A delivery may use the connection's own peeker meanwhile.
		quiet := peeker(element.Value.(*conn).socket)
		over[element] = !quiet()
	}
	i.closeIf(func(c *conn) bool { return over[c.element] })
	i.mu.Lock()
	defer i.mu.Unlock()
	i.sweeping = i.all.Len() > 0
	if i.sweeping {
		time.AfterFunc(sweepInterval, i.sweep)
	}
}

// elements returns the list's elements. A connection that was taken and put back since then is in
// another one.
func (i *Idle) elements() []*list.Element {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make([]*list.Element, 0, i.all.Len())
	for at := i.all.Front(); at != nil; at = at.Next() {
		all = append(all, at)
	}
	return all
}

// Len returns how many connections are idle.
func (i *Idle) Len() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.all.Len()
}

// Close closes all idle connections.
func (i *Idle) Close() { i.closeIf(func(*conn) bool { return true }) }

// closeIf closes the idle connections for which over returns true. It calls over under the mutex.
func (i *Idle) closeIf(over func(*conn) bool) {
	i.mu.Lock()
	var gone []*conn
	for at := i.all.Front(); at != nil; at = at.Next() {
		if c := at.Value.(*conn); over(c) {
			gone = append(gone, c)
		}
	}
	for _, c := range gone {
		i.remove(c)
	}
	i.mu.Unlock()
	for _, c := range gone {
		c.cut()
	}
}
