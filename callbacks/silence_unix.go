//go:build unix

package callbacks

import (
	"net"
	"syscall"
)

// silence returns what reports, without waiting, whether a socket is open and has nothing
// to read: neither its end nor something that nobody has asked for. It takes nothing from the
// socket. Each goroutine needs one of its own.
func silence(c net.Conn) func() bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return func() bool { return false }
	}
	socket, err := s.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	var silent bool
	var one [1]byte
	look := func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
		silent = err == syscall.EAGAIN
	}
	return func() bool {
		silent = false
		return socket.Control(look) == nil && silent
	}
}
