package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
)

// machine is what the figures were measured on.
type machine struct {
	System   string `json:"system"`
	Cores    int    `json:"cores"`
	CPU      string `json:"cpu"`
	Memory   string `json:"memory"`
	Go       string `json:"go"`
	Postgres string `json:"postgres"`
	Load     string `json:"load"` // processes that wanted to run in the last minute, when it began
}

// String is one line of text.
func (m machine) String() string {
	return fmt.Sprintf("%s; %d cores (%s), %s, Go %s, Postgres %s; load when it began: %s",
		m.System, m.Cores, m.CPU, m.Memory, m.Go, m.Postgres, m.Load)
}

func describeMachine() machine {
	return machine{
		System: runtime.GOOS + "/" + runtime.GOARCH,
		Cores:  runtime.NumCPU(),
		CPU:    orUnknown(fieldOf("/proc/cpuinfo", "model name")),
		Memory: memory(),
		Go:     strings.TrimPrefix(runtime.Version(), "go"),
		Load:   orUnknown(load()),
	}
}

// fieldOf returns the first "name : value" of a file, or "".
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

func memory() string {
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
