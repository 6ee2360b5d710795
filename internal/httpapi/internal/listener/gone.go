package listener

import (
	"errors"
	"net"
	"syscall"
)

// Gone reports whether the client closed the connection, as far as can be seen. It may be called
// while nobody reads.
func (c *Conn) Gone() bool {
	under, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := under.SyscallConn()
	if err != nil {
		return errors.Is(err, net.ErrClosed)
	}
	gone := false
	if err := raw.Control(func(fd uintptr) { gone = ended(fd) }); err != nil {
		return true
	}
	return gone
}
