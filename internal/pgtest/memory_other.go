//go:build !linux

package pgtest

// parentDir returns the parent of the servers' directories: that of temporary files.
func parentDir() string { return "" }
