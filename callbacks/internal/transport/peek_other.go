//go:build !unix

package transport

import "net"

// peeker returns a function that always returns true: this system has no peek. A request on a
// connection that the worker has closed meanwhile fails.
func peeker(net.Conn) func() bool { return func() bool { return true } }
