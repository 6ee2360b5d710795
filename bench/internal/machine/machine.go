// Package machine describes the machine that a measurement runs on, and reads the CPU time and
// the memory of its processes. It reads /proc: elsewhere than on Linux all of this is 0.
package machine

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Machine is what the figures were measured on.
type Machine struct {
	System   string `json:"system"`
	Cores    int    `json:"cores"`
	CPU      string `json:"cpu"`
	Memory   string `json:"memory"`
	Go       string `json:"go"`
	Postgres string `json:"postgres"`
	Load     string `json:"load"` // the load average of the last minute when the run began
}

// String describes the machine in one line.
func (m Machine) String() string {
	return fmt.Sprintf("%s; %d cores (%s), %s, Go %s, Postgres %s; load when it began: %s",
		m.System, m.Cores, m.CPU, m.Memory, m.Go, m.Postgres, m.Load)
}

// Describe returns this machine. postgres is the version of the server in use.
func Describe(postgres string) Machine {
	return Machine{
		System:   runtime.GOOS + "/" + runtime.GOARCH,
		Cores:    runtime.NumCPU(),
		CPU:      orUnknown(fieldOf("/proc/cpuinfo", "model name")),
		Memory:   totalMemory(),
		Go:       strings.TrimPrefix(runtime.Version(), "go"),
		Postgres: postgres,
		Load:     orUnknown(load()),
	}
}

// fieldOf returns the value of the first "name : value" of a file; "" when there is none.
func fieldOf(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func totalMemory() string {
	var kB int
	if _, err := fmt.Sscanf(fieldOf("/proc/meminfo", "MemTotal"), "%d kB", &kB); err != nil {
		return "memory unknown"
	}
	return fmt.Sprintf("%.0f GB", float64(kB)/1e6)
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}
