package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// devDefaults returns the URL and the token of a dev server that runs on this
// machine with its default data directory. ok is false if there is none, or if
// its file isn't ours to read.
func devDefaults() (url, token string, ok bool) {
	dir, err := devpg.DefaultDataDir()
	if err != nil {
		return "", "", false
	}
	f, ok := runningDev(filepath.Join(dir, "dev.json"))
	return f.URL, f.Token, ok
}

// runningDev reads the file that a dev server writes. It ignores a file that a killed server
// left behind.
func runningDev(path string) (f devFile, ok bool) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return devFile{}, false
	}
	if json.Unmarshal(raw, &f) != nil || f.URL == "" || !processAlive(f.PID) {
		return devFile{}, false
	}
	return f, true
}

// processAlive reports whether there is a process of that id, ours or not.
func processAlive(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
