//go:build !linux

package postgres

import "syscall"

// setUserTimeout does nothing: only Linux has the option. Deadlines of statements are enough.
func setUserTimeout(string, string, syscall.RawConn) error { return nil }
