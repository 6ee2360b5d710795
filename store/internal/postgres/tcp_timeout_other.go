//go:build !linux

package postgres

import "syscall"

// setUserTimeout does nothing: the option is there on Linux only. Deadlines of statements are
// enough.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
