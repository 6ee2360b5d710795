//go:build !linux

package listener

// unacknowledged can't tell.
func unacknowledged(uintptr) (n int, known bool) { return 0, false }
