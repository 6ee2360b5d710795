//go:build !linux

package postgres

import "syscall"

// tcpLimits does nothing: only Linux has the option. Deadlines of statements are enough.
func tcpLimits(string, string, syscall.RawConn) error { return nil }
