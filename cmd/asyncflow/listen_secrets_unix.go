//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile waits for the lock of a file, which ends with the file.
func lockFile(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_EX) }
