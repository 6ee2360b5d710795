package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the CPU time that a process used itself, with that of its ended threads. It reads the
// process's own clock, which counts nanoseconds: /proc/PID/stat counts hundreds of a second, too
// coarse for the many processes of Postgres. It is read only where the clock can't be, as in some
// sandboxes.
func CPU(pid int) (time.Duration, error) {
	var used unix.Timespec
	if err := unix.ClockGettime(clockOf(pid), &used); err == nil {
		return time.Duration(used.Nano()), nil
	}
	s, err := readStat(pid)
	return s.own, err
}

// clockOf returns the clock of the CPU time of a process, as clock_getcpuclockid(3) does.
func clockOf(pid int) int32 {
	const sched = 2 // CPUCLOCK_SCHED: user and system time as the scheduler counts it
	return int32(^pid<<3 | sched)
}

// CPUOfFamily returns the CPU time that a process and its children used, with that of the ended
// children.
func CPUOfFamily(pid int) (time.Duration, error) {
	for {
		before, err := readStat(pid)
		if err != nil {
			return 0, err
		}
		own, err := CPU(pid)
		if err != nil {
			return 0, err
		}
		living, err := cpuOfChildren(pid)
		if err != nil {
			return 0, err
		}
		// A child that ended in between would count twice or not at all: read again.
		after, err := readStat(pid)
		if err != nil || after.ended == before.ended {
			return own + after.ended + living, err
		}
	}
}

func cpuOfChildren(parent int) (sum time.Duration, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // it just ended
		}
		s, err := parseStat(string(line))
		if err != nil || s.parent != parent {
			continue
		}
		used, err := CPU(s.pid)
		if err != nil {
			continue
		}
		sum += used
	}
	return sum, err
}

// stat is what /proc/PID/stat says about a process.
type stat struct {
	pid, parent int
	own         time.Duration // CPU time of the process itself
	ended       time.Duration // that of its ended children
}

// tick is the unit of CPU time in /proc: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

func readStat(pid int) (stat, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(line))
}

// parseStat reads a line of /proc/PID/stat. The name, in parentheses, may contain anything.
func parseStat(line string) (s stat, err error) {
	open, end := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')')
	if open < 1 || end < open {
		return s, fmt.Errorf("not a stat line: %q", line)
	}
	f := strings.Fields(line[end+1:]) // from field 3, the state, on
	if len(f) < 15 {
		return s, fmt.Errorf("not a stat line: %q", line)
	}
	number := func(text string) int {
		n, convErr := strconv.Atoi(text)
		if convErr != nil && err == nil {
			err = convErr
		}
		return n
	}
	s.pid, s.parent = number(strings.TrimSpace(line[:open])), number(f[1])
	s.own = time.Duration(number(f[11])+number(f[12])) * tick
	s.ended = time.Duration(number(f[13])+number(f[14])) * tick
	return s, err
}
