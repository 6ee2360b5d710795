package pgtest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// OwnCPU returns the CPU time that this process has taken.
func OwnCPU(t testing.TB) time.Duration {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// CPU returns the CPU time that the Postgres of a database has taken, in hundredths of a second:
// the server, its processes, and the processes that have ended. It skips the test where /proc
// doesn't say.
func CPU(t testing.TB, url string) time.Duration {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	defer conn.Close(t.Context())
	var pid int
	if err := conn.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	own := statOf(pid)
	if own == nil {
		t.Skip("/proc doesn't say what a process of Postgres takes")
	}
	server := own[1]
	var ticks int64
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range all {
		pid := filepath.Base(filepath.Dir(file))
		n, _ := strconv.Atoi(pid)
		s := statOf(n)
		switch {
		case s == nil: // it has ended
		case pid == server:
			ticks += number(s[11]) + number(s[12]) + number(s[13]) + number(s[14])
		case s[1] == server:
			ticks += number(s[11]) + number(s[12])
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// statOf returns the fields of a process from its state on; nil: it has ended.
func statOf(pid int) []string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(line[bytes.LastIndexByte(line, ')')+1:]))
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}
