package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// devDefaults returns the URL and the token of a dev server that runs on this
// machine. ok is false if there is none, or if its file isn't ours to read.
func devDefaults(env lookup) (url, token string, ok bool) {
	f, _, ok := findDev(env)
	return f.URL, f.Token, ok
}

// findDev returns the file and the data directory of a dev server that runs on this machine, with
// the directory in ASYNCFLOW_DATA or the default one.
func findDev(env lookup) (f devFile, dir string, ok bool) {
	dir, _ = env("ASYNCFLOW_DATA")
	if dir == "" {
		var err error
		if dir, err = devpg.DefaultDataDir(); err != nil {
			return devFile{}, "", false
		}
	}
	f, ok = runningDev(filepath.Join(dir, "dev.json"))
	return f, dir, ok
}

// devSetting returns a setting of a running dev server, and says so: a command must not change it
// when another database is meant. It returns nil without a name, without a dev server, or if
// ASYNCFLOW_URL names another server.
func devSetting(name string, env lookup, stderr io.Writer) (any, error) {
	if name == "" {
		return nil, nil
	}
	f, dir, ok := findDev(env)
	if url, _ := env("ASYNCFLOW_URL"); !ok || url != "" && url != f.URL {
		return nil, nil
	}
	if name == "database" {
		fmt.Fprintf(stderr, "asyncflow: using the database of the dev server at %s\n", f.URL)
		return f.DatabaseURL, nil
	}
	secrets, err := loadSecrets(filepath.Join(dir, "secrets.json"))
	switch {
	case err != nil:
		return nil, err
	case name == "jwt":
		fmt.Fprintf(stderr, "asyncflow: signing with the key of the dev server at %s\n", f.URL)
		return secrets.JWT, nil
	default:
		return secrets.Node, nil
	}
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
