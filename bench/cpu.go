package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of CPU time in /proc: USER_HZ is 100 on every Linux.
const tick = 10 * time.Millisecond

// stat is what /proc/PID/stat tells of a process.
type stat struct {
	pid, parent int
	own         time.Duration // user and system time of its own
	ended       time.Duration // the same of its children that have ended
}

// parseStat reads a line of /proc/PID/stat. The name, in parentheses, may hold
// anything.
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

func readStat(pid int) (stat, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return parseStat(string(line))
}

// cpuOf returns the CPU time of a process by itself. Elsewhere than on Linux it
// is 0.
func cpuOf(pid int) (time.Duration, error) {
	if runtime.GOOS != "linux" {
		return 0, nil
	}
	s, err := readStat(pid)
	return s.own, err
}

// cpuOfFamily returns the CPU time of a process and of its children, those that
// have ended too.
func cpuOfFamily(pid int) (time.Duration, error) {
	if runtime.GOOS != "linux" {
		return 0, nil
	}
	for {
		before, err := readStat(pid)
		if err != nil {
			return 0, err
		}
		living, err := cpuOfChildren(pid)
		if err != nil {
			return 0, err
		}
		// A child that ended in between would count twice or not at all.
		after, err := readStat(pid)
		if err != nil || after.ended == before.ended {
			return after.own + after.ended + living, err
		}
	}
}

func cpuOfChildren(parent int) (sum time.Duration, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // it has just ended
		}
		if s, err := parseStat(string(line)); err == nil && s.parent == parent {
			sum += s.own
		}
	}
	return sum, err
}

// usage is the CPU time that each process has used.
type usage struct{ node, postgres, worker, submitter time.Duration }

// usage returns that until now.
func (b *bench) usage() (u usage, err error) {
	for _, n := range b.nodes {
		own, err := cpuOf(n.pid())
		if err != nil {
			return u, err
		}
		u.node += own
	}
	if u.postgres, err = cpuOfFamily(b.postgres.PID()); err != nil {
		return u, err
	}
	if u.worker, err = cpuOf(b.worker.pid()); err != nil {
		return u, err
	}
	u.submitter, err = cpuOf(os.Getpid())
	return u, err
}

// since returns what was used after an earlier time.
func (u usage) since(before usage) usage {
	return usage{u.node - before.node, u.postgres - before.postgres, u.worker - before.worker, u.submitter - before.submitter}
}

func (u usage) sum() time.Duration { return u.node + u.postgres + u.worker + u.submitter }

// micros returns a time for each of n, in microseconds.
func micros(d time.Duration, n int) float64 { return d.Seconds() * 1e6 / float64(n) }
