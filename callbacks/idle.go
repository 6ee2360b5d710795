package callbacks

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

const (
	// idleTime is how long a connection is kept without a request.
	idleTime = 90 * time.Second
	// idleLook is how often the kept connections are looked at.
	idleLook = 15 * time.Second
)

// idle holds the connections that a node keeps for further requests. Its lock is held for moments
// only: no connection is looked at, or closed, under it.
type idle struct {
	perAddress, most int

	mu      sync.Mutex
	by      map[address][]*conn // the one that was put down last at the end
	all     list.List           // of *conn, the one that was put down first in front
	looking bool                // a look is to come
}

// newIdle returns a pool of as many connections as a node's Config has it.
func newIdle(cfg Config) *idle { return newIdleOf(cfg.Connections, 4*cfg.Connections) }

func newIdleOf(perAddress, most int) *idle {
	return &idle{perAddress: perAddress, most: most, by: map[address][]*conn{}}
}

// take returns a connection that is still good, or nil: a worker, or something on the
// way, may have closed it meanwhile.
func (i *idle) take(to address) *conn {
	for {
		c := i.pop(to)
		if c == nil || c.silent() {
			return c
		}
		c.cut()
	}
}

// pop takes out the connection that was put down last: it is the least likely to be
// closed, and the others get old.
func (i *idle) pop(to address) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	kept := i.by[to]
	if len(kept) == 0 {
		return nil
	}
	c := kept[len(kept)-1]
	i.drop(c)
	return c
}

// put keeps a connection. If there are too many, the one goes that has waited longest.
func (i *idle) put(c *conn) {
	if over := i.add(c); over != nil {
		over.cut()
	}
}

func (i *idle) add(c *conn) (over *conn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c.since = time.Now()
	c.place = i.all.PushBack(c)
	kept := append(i.by[c.to], c)
	i.by[c.to] = kept
	if !i.looking {
		i.looking = true
		time.AfterFunc(idleLook, i.look)
	}
	switch {
	case len(kept) > i.perAddress:
		over = kept[0]
	case i.all.Len() > i.most:
		over = i.all.Front().Value.(*conn)
	default:
		return nil
	}
	i.drop(over)
	return over
}

// drop takes a connection out.
func (i *idle) drop(c *conn) {
	i.all.Remove(c.place)
	c.place = nil
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

// look closes the connections that have waited too long, and those that workers have
// closed, so that they don't hold sockets.
func (i *idle) look() {
	now := time.Now()
	i.closeIf(func(c *conn) bool { return now.Sub(c.since) > idleTime })
	over := map[*list.Element]bool{}
	for _, place := range i.places() {
		silent := silence(place.Value.(*conn).raw) // a delivery may use the connection's own meanwhile
		over[place] = !silent()
	}
	i.closeIf(func(c *conn) bool { return over[c.place] })
	i.mu.Lock()
	defer i.mu.Unlock()
	i.looking = i.all.Len() > 0
	if i.looking {
		time.AfterFunc(idleLook, i.look)
	}
}

// places returns where the connections stand. One that is taken, and put down again, stands in
// another place.
func (i *idle) places() []*list.Element {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := make([]*list.Element, 0, i.all.Len())
	for at := i.all.Front(); at != nil; at = at.Next() {
		all = append(all, at)
	}
	return all
}

// closeOf closes what is kept of a transport.
func (i *idle) closeOf(t *transport) { i.closeIf(func(c *conn) bool { return c.to.via == t }) }

// closeIf closes the kept connections for which over, called under the lock, returns true.
func (i *idle) closeIf(over func(*conn) bool) {
	i.mu.Lock()
	var gone []*conn
	for at := i.all.Front(); at != nil; at = at.Next() {
		if c := at.Value.(*conn); over(c) {
			gone = append(gone, c)
		}
	}
	for _, c := range gone {
		i.drop(c)
	}
	i.mu.Unlock()
	for _, c := range gone {
		c.cut()
	}
}
