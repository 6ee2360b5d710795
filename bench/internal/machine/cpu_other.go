//go:build !linux

package machine

import "time"

// CPU returns 0: the CPU time of a process can't be read here.
func CPU(int) (time.Duration, error) { return 0, nil }

// CPUOfFamily returns 0, too.
func CPUOfFamily(int) (time.Duration, error) { return 0, nil }
