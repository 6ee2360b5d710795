//go:build !unix

package transport

import "net"

// peeker returns a function that always returns true: there is no peek in this system. A request on
// a connection that the worker closed meanwhile fails.
func peeker(net.Conn) func() bool { return func() bool { return true } }
