//go:build unix

package transport

import (
	"errors"
	"net"
	"syscall"
)

// peeker returns a function that reports, without waiting, whether a socket is open and there is
// nothing to read: neither its end nor bytes that nobody asked for. It consumes nothing. Each
// goroutine needs a peeker of its own.
func peeker(c net.Conn) func() bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return func() bool { return false }
	}
	socket, err := s.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	var quiet bool
	var one [1]byte
	peek := func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK)
		quiet = errors.Is(err, syscall.EAGAIN)
	}
	return func() bool {
		quiet = false
		return socket.Control(peek) == nil && quiet
	}
}
