//go:build !linux

package pgtest

// parentDir returns where the servers' directories belong: where temporary files are.
func parentDir() string { return "" }
