package machine

import "fmt"

// ResidentMemory returns the memory of a process in MB; 0 where it can't be read.
func ResidentMemory(pid int) float64 { return memoryField(pid, "status", "VmRSS") }

// PeakMemory returns the largest resident memory of a process since its start, in MB.
func PeakMemory(pid int) float64 { return memoryField(pid, "status", "VmHWM") }

// PrivateMemory returns the memory of a process in MB, without what it shares with others, such
// as the buffers of Postgres.
func PrivateMemory(pid int) float64 { return memoryField(pid, "smaps_rollup", "Private_Dirty") }

// ProportionalMemory returns the memory of a process in MB, where what n processes share counts as
// one nth for each of them.
func ProportionalMemory(pid int) float64 { return memoryField(pid, "smaps_rollup", "Pss") }

// ProportionalShared returns the part of ProportionalMemory that is shared memory, such as the
// buffers of Postgres.
func ProportionalShared(pid int) float64 { return memoryField(pid, "smaps_rollup", "Pss_Shmem") }

func memoryField(pid int, file, field string) float64 {
	var kB float64
	_, _ = fmt.Sscanf(fieldOf(fmt.Sprintf("/proc/%d/%s", pid, file), field), "%f kB", &kB)
	return kB / 1000
}
