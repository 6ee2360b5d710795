package listener

import "golang.org/x/sys/unix"

// unacknowledged returns how many bytes of a connection the other side didn't acknowledge: see
// SIOCOUTQ in tcp(7). known is false if the connection failed.
func unacknowledged(fd uintptr) (n int, known bool) {
	n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	if err != nil {
		return 0, false
	}
	fault, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR)
	return n, err == nil && fault == 0
}
