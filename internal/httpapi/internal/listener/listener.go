package httpapi

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/asyncflow/asyncflow"
)

// ConnectionConfig bounds the connections of a node. Zero values are the defaults.
type ConnectionConfig struct {
	Max           int           // at once; 0: 10,000
	MaxPerAddress int           // at once from one IP address, of IPv6 from one /64; 0: as many as Max
	ReadTimeout   time.Duration // for a whole request, from its first byte to the last; 0: 30 s
	IdleTimeout   time.Duration // between two requests; 0: 2 minutes
}

// DefaultMaxConnections is how many connections a node has at once unless configured.
const DefaultMaxConnections = 10_000

func (c ConnectionConfig) withDefaults() ConnectionConfig {
	if c.Max == 0 {
		c.Max = DefaultMaxConnections
	}
	if c.MaxPerAddress == 0 {
		c.MaxPerAddress = c.Max
	}
	if c.ReadTimeout == 0 {
		c.ReadTimeout = 30 * time.Second
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 2 * time.Minute
	}
	return c
}

// door is a listener that lets so many connections in, and tells the others so.
type door struct {
	net.Listener
	limits ConnectionConfig
	log    *slog.Logger
	close  func() error // more than once

	mu     sync.Mutex
	open   int
	from   map[netip.Addr]int
	warned time.Time

	leaving chan struct{} // holds one for each connection that is told so
}

// maxLeaving bounds the connections that are told why they are closed; others just are.
const maxLeaving = 100

func newDoor(l net.Listener, limits ConnectionConfig, log *slog.Logger) *door {
	return &door{Listener: l, limits: limits, log: log, close: sync.OnceValue(l.Close), from: map[netip.Addr]int{}, leaving: make(chan struct{}, maxLeaving)}
}

// Close takes no more connections.
func (d *door) Close() error { return d.close() }

// Accept returns the next connection that is within the limits.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		addr := addressOf(c)
		if why := d.enter(addr); why != "" {
			d.turnAway(c, why)
			continue
		}
		return &guest{Conn: c, leave: sync.OnceFunc(func() { d.leave(addr) })}, nil
	}
}

// enter counts a connection in, or tells which limit is reached.
func (d *door) enter(addr netip.Addr) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var why string
	switch {
	case d.open >= d.limits.Max:
		why = fmt.Sprintf("this node has %d connections; that is its limit", d.open)
	case d.from[addr] >= d.limits.MaxPerAddress:
		why = fmt.Sprintf("this node has %d connections from your address; that is its limit", d.from[addr])
	default:
		d.open++
		d.from[addr]++
		return ""
	}
	if time.Since(d.warned) > time.Minute {
		d.warned = time.Now()
		d.log.Warn("connections are turned away", "address", addr, "reason", why)
	}
	return why
}

func (d *door) leave(addr netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	if d.from[addr]--; d.from[addr] == 0 {
		delete(d.from, addr)
	}
}

// turnAway answers a connection with a problem and closes it. What it has sent is read
// first: closing over it would take the answer back.
func (d *door) turnAway(c net.Conn, why string) {
	select {
	case d.leaving <- struct{}{}:
	default:
		c.Close()
		return
	}
	go func() {
		defer func() { <-d.leaving }()
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		if _, err := c.Write(refusal(why)); err != nil {
			return
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
			io.CopyN(io.Discard, c, headerLimit)
		}
	}()
}

// refusal is a whole answer of HTTP for a request that isn't looked at.
func refusal(why string) []byte {
	p := problemOf(asyncflow.Errorf(asyncflow.CodeUnavailable, "%s", why))
	body, _ := encode(p) // plain fields
	head := "HTTP/1.1 " + strconv.Itoa(p.Status) + " " + http.StatusText(p.Status) +
		"\r\nContent-Type: application/problem+json\r\nContent-Length: " + strconv.Itoa(len(body)) +
		"\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
	return append([]byte(head), body...)
}

// addressOf returns what connections are counted by: who has an IPv6 address has the
// whole /64 of it.
func addressOf(c net.Conn) netip.Addr {
	to, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	addr := to.Addr().Unmap().WithZone("")
	if addr.Is6() {
		addr = netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}

// guest is a connection that is counted out once it is closed. One goroutine reads it.
type guest struct {
	net.Conn
	leave  func()
	ended  bool // the client has sent its last byte, and all of them were read
	linger bool // there is more to read, which is dropped before it is closed
}

// Read reads what has come.
func (g *guest) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	g.ended = g.ended || errors.Is(err, io.EOF)
	return n, err
}

// lingerTime is how long what a client is still sending is read after an answer that didn't
// wait for it.
const lingerTime = 500 * time.Millisecond

// Close closes the connection. Closing it over bytes that nobody has read would take the last
// answer back.
func (g *guest) Close() error {
	defer g.leave()
	if half, ok := g.Conn.(interface{ CloseWrite() error }); ok && g.linger && half.CloseWrite() == nil {
		_ = g.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, g.Conn)
	}
	return g.Conn.Close()
}
