package main

import "fmt"

// residentMemory returns the memory of a process in MB; 0 where that can't be read.
func residentMemory(pid int) float64 { return memoryField(pid, "status", "VmRSS") }

// peakMemory is the most that it has had since it started.
func peakMemory(pid int) float64 { return memoryField(pid, "status", "VmHWM") }

// privateMemory is that without what it shares with others, such as Postgres' buffers.
func privateMemory(pid int) float64 { return memoryField(pid, "smaps_rollup", "Private_Dirty") }

func memoryField(pid int, file, field string) float64 {
	var kB float64
	_, _ = fmt.Sscanf(fieldOf(fmt.Sprintf("/proc/%d/%s", pid, file), field), "%f kB", &kB)
	return kB / 1000
}
