package listener

import "syscall"

// Sent returns how many bytes were written to the connection.
func (c *Conn) Sent() int64 { return c.sent.Load() }

// Took reports whether the client's machine has acknowledged the first n bytes that were written to
// the connection. It is false where the system can't tell.
func (c *Conn) Took(n int64) bool {
	if c.finished.Load() {
		return c.taken.Load() >= n
	}
	return c.acknowledged() >= n
}

// finish records how much the client has taken, as the connection ends. A client that is killed
// before it has read all resets the connection instead.
func (c *Conn) finish() {
	if !c.finished.Load() {
		c.taken.Store(c.acknowledged())
		c.finished.Store(true)
	}
}

// acknowledged returns about how many bytes the client's machine has acknowledged, or fewer.
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
