// Package listener limits how many connections to a server are open.
package listener

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits bounds the open connections.
type Limits struct {
	Max           int
	MaxAnonymous  int // that are not identified; see anonymous.go
	MaxPerAddress int // of one IPv4 address, or one IPv6 /64; 0: any number
}

// maxRefusing bounds the connections that are being told why they are closed. Others are closed
// without a word.
const maxRefusing = 100

// refusedRead bounds what is read of a refused connection, in bytes.
const refusedRead = 16 << 10

// Listener accepts connections up to its limits, and refuses the others.
type Listener struct {
	net.Listener
	limits  Limits
	refusal func(reason string) []byte
	log     *slog.Logger
	close   func() error // may be called more than once

	mu        sync.Mutex
	open      int
	from      map[netip.Addr]int
	anonymous list.List // of *Conn, by the time of their last answers
	refused   time.Time // the last warning that connections were refused
	evicted   time.Time // the last warning that anonymous connections were closed

	refusing chan struct{} // holds one value for each connection that is being refused
}

// New returns a listener for connections of l. A connection over the limits gets
// refusal's answer and is closed.
func New(
	l net.Listener, limits Limits, refusal func(reason string) []byte, log *slog.Logger,
) *Listener {
	return &Listener{
		Listener: l,
		limits:   limits,
		refusal:  refusal,
		log:      log,
		close:    sync.OnceValue(l.Close),
		from:     map[netip.Addr]int{},
		refusing: make(chan struct{}, maxRefusing),
	}
}

// Close stops accepting connections. It may be called more than once.
func (l *Listener) Close() error { return l.close() }

// Accept returns the next connection that is within the limits.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn := &Conn{Conn: c, listener: l, addr: addressOf(c), waits: true}
		evicted, reason := l.enter(conn)
		if reason != "" {
			l.refuse(c, reason)
			continue
		}
		if evicted != nil {
			evicted.Conn.Close()
		}
		return conn, nil
	}
}

// enter counts a connection, or returns which limit keeps it out. The caller closes evicted, the
// connection that made room for the new one, unless it is nil.
func (l *Listener) enter(c *Conn) (evicted *Conn, reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if most := l.limits.MaxPerAddress; most > 0 && l.from[c.addr] >= most {
		reason = fmt.Sprintf("this node has %d connections from your address; that is its limit",
			most)
		l.warn(&l.refused, "connections are turned away", c, reason)
		return nil, reason
	}
	if reason = l.reached(); reason != "" {
		evicted = l.evict()
		if evicted == nil {
			l.warn(&l.refused, "connections are turned away", c, reason)
			return nil, reason
		}
		l.warn(&l.evicted, "connections without a token are closed", evicted, reason)
	}
	l.open++
	l.from[c.addr]++
	c.place = l.anonymous.PushBack(c)
	return evicted, ""
}

// reached returns which limit of the node is reached; "": none.
func (l *Listener) reached() string {
	switch {
	case l.open >= l.limits.Max:
		return fmt.Sprintf("this node has %d connections; that is its limit", l.open)
	case l.anonymous.Len() >= l.limits.MaxAnonymous:
		return fmt.Sprintf("this node has %d connections without a token; that is its limit",
			l.anonymous.Len())
	}
	return ""
}

// warn logs a message about a connection at most once a minute. last is when it did.
func (l *Listener) warn(last *time.Time, message string, c *Conn, reason string) {
	if time.Since(*last) > time.Minute {
		*last = time.Now()
		l.log.Warn(message, "address", c.addr, "reason", reason)
	}
}

// leave ends the count of a connection. It may be called more than once.
func (l *Listener) leave(c *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
}

// remove is leave under the lock.
func (l *Listener) remove(c *Conn) {
	if c.left {
		return
	}
	c.left = true
	l.forget(c)
	l.open--
	if l.from[c.addr]--; l.from[c.addr] == 0 {
		delete(l.from, c.addr)
	}
}

// refuse sends the refusal and closes the connection. It reads what the client sent first: closing
// with unread bytes would reset the connection and lose the answer.
func (l *Listener) refuse(c net.Conn, reason string) {
	select {
	case l.refusing <- struct{}{}:
	default:
		c.Close()
		return
	}
	go func() {
		defer func() { <-l.refusing }()
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write(l.refusal(reason)); err != nil {
			return
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			io.CopyN(io.Discard, c, refusedRead)
		}
	}()
}

// addressOf returns the address that a connection counts for.
func addressOf(c net.Conn) netip.Addr {
	to, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return HolderOf(to.Addr())
}

// HolderOf returns what an address counts for. The holder of an IPv6 address holds its whole /64,
// so the /64 counts.
func HolderOf(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		addr = netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}

// Conn is a connection that counts until it is closed. One goroutine reads it.
type Conn struct {
	net.Conn
	listener *Listener
	addr     netip.Addr // that it counts for
	ended    bool
	linger   bool

	identified atomic.Bool
	place      *list.Element // in listener.anonymous; guarded by listener.mu, as what follows
	waits      bool          // for the client: no request is being handled
	left       bool          // it doesn't count any more

	sent     atomic.Int64 // bytes
	finished atomic.Bool  // taken is final
	taken    atomic.Int64 // bytes that the client had acknowledged at the end
}

// Ended reports whether the client sent its last byte, and all its bytes were read.
func (c *Conn) Ended() bool { return c.ended }

// Linger makes Close read and drop, for a short time, what the client still sends.
func (c *Conn) Linger() { c.linger = true }

// Read reads what the client sent.
func (c *Conn) Read(p []byte) (int, error) {
	c.setWaits(true)
	n, err := c.Conn.Read(p)
	if !c.setWaits(false) {
		return 0, net.ErrClosed // no request begins if its answer would be lost
	}
	if errors.Is(err, io.EOF) && !c.ended {
		c.ended = true
		c.finish()
	}
	return n, err
}

// Write sends bytes to the client.
func (c *Conn) Write(p []byte) (int, error) {
	c.renew()
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}

// lingerTime is how long a lingering Close reads.
const lingerTime = 500 * time.Millisecond

// Close closes the connection. Without Linger, closing with unread bytes resets the connection,
// and the client loses the last answer.
func (c *Conn) Close() error {
	defer c.listener.leave(c)
	c.setWaits(true)
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok && c.linger &&
		half.CloseWrite() == nil {
		_ = c.SetReadDeadline(time.Now().Add(lingerTime))
		if _, err := io.Copy(io.Discard, c.Conn); err == nil {
			c.finish()
		}
	}
	c.finished.Store(true)
	return c.Conn.Close()
}

// Sent returns how many bytes were written to the connection.
func (c *Conn) Sent() int64 { return c.sent.Load() }

// Took reports whether the client's machine acknowledged the first n bytes that were written to the
// connection. It is false where the system can't tell.
func (c *Conn) Took(n int64) bool {
	if c.finished.Load() {
		return c.taken.Load() >= n
	}
	return c.acknowledged() >= n
}

// finish records how much the client took, as the connection ends. A client that is killed before
// it read all resets the connection instead.
func (c *Conn) finish() {
	if !c.finished.Load() {
		c.taken.Store(c.acknowledged())
		c.finished.Store(true)
	}
}

// acknowledged returns about how many bytes the client's machine acknowledged, or fewer.
func (c *Conn) acknowledged() int64 {
	under, ok := c.Conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := under.SyscallConn()
	if err != nil {
		return 0
	}
	sent, waiting, known := c.sent.Load(), 0, false // sent first: waiting may grow meanwhile
	err = raw.Control(func(fd uintptr) { waiting, known = unacknowledged(fd) })
	if err != nil || !known {
		return 0
	}
	return sent - int64(waiting)
}
