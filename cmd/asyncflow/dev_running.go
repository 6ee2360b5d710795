package main

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/callbacks"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/signing"
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

// devSecrets are the secrets of a dev server. They are created once and kept, so that its
// tokens and sealed secrets stay valid.
type devSecrets struct {
	Node    string `json:"node"`
	JWT     string `json:"jwt"`
	Samples string `json:"samples"` // the sample worker's signing secret
}

func loadSecrets(path string) (devSecrets, error) {
	var s devSecrets
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		s = devSecrets{Node: hex.EncodeToString(callbacks.RandomBytes(32)),
			JWT: hex.EncodeToString(callbacks.RandomBytes(32)), Samples: signing.NewSecret()}
		return s, writePrivate(path, s)
	}
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("%s can't be read: %w", path, err)
	}
	return s, nil
}

// devFile describes a running dev server to scripts and tests.
type devFile struct {
	URL         string `json:"url"`
	Tenant      string `json:"tenant"`
	Token       string `json:"token"`
	AdminToken  string `json:"admin_token"`
	DatabaseURL string `json:"database_url"`
	PID         int    `json:"pid"`
}

func (d *dev) file() string { return filepath.Join(d.cmd.Data, "dev.json") }

func (d *dev) writeFile() error {
	return writePrivate(d.file(), devFile{URL: d.url, Tenant: devTenant, Token: d.token,
		AdminToken: d.admin, DatabaseURL: d.database, PID: os.Getpid()})
}

// orOtherDev explains why the dev server can't start: if another dev server holds the port or the
// data directory, the error says so. Otherwise it is err.
func (c *devCmd) orOtherDev(err error) error {
	other, ok := runningDev(filepath.Join(c.Data, "dev.json"))
	addr, tcpErr := net.ResolveTCPAddr("tcp", c.Addr)
	samePort := tcpErr == nil && strings.HasSuffix(other.URL, ":"+strconv.Itoa(addr.Port))
	inTheWay := samePort || asyncflow.CodeOf(err) == asyncflow.CodeConflict
	if !ok || !inTheWay || other.PID == os.Getpid() {
		return err
	}
	return asyncflow.Errorf(asyncflow.CodeConflict,
		"another asyncflow dev runs on the data in %s: it serves %s and has the pid %d; use that "+
			"one, stop it (Ctrl-C, or kill -INT %d), or start this one with --data and --addr of "+
			"its own",
		c.Data, other.URL, other.PID, other.PID)
}

// writePrivate writes a JSON file atomically, readable only by its owner.
func writePrivate(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	temp := path + ".new"
	if err := os.WriteFile(temp, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
