//go:build linux || darwin

package devpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxSocketPath is the longest path of a unix socket, in bytes. The limits are 107 on Linux and
// 103 on macOS.
const maxSocketPath = 99

// layout is a data directory, by its absolute path.
type layout string

func (l layout) path(name string) string { return filepath.Join(string(l), name) }

func (l layout) pgdata() string   { return l.path("pgdata") }
func (l layout) password() string { return l.path("password") }
func (l layout) lock() string     { return l.path("lock") }
func (l layout) log() string      { return l.path("postgres.log") }
func (l layout) socket() string   { return l.path("socket") }

// create creates the data directory and its missing parents. Other users may pass through
// directories that root creates, whatever the umask, since the server runs as one of them;
// nobody may pass through another user's.
func (l layout) create() error {
	mode := os.FileMode(0o700)
	if os.Geteuid() == 0 {
		mode = 0o711
	}
	for _, dir := range missing(string(l)) {
		if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("data directory: %w", err)
		}
		if err := os.Chmod(dir, mode); err != nil {
			return fmt.Errorf("data directory: %w", err)
		}
	}
	return nil
}

// missing returns dir and its parents, if they don't exist, outermost first.
func missing(dir string) []string {
	if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
		return nil
	}
	return append(missing(filepath.Dir(dir)), dir)
}

// makeSocketDir creates the directory of the unix socket and returns it, or "" if the socket's
// path would be too long.
func (l layout) makeSocketDir(acct account) (string, error) {
	dir := l.socket()
	if len(dir)+len("/.s.PGSQL.65535") > maxSocketPath {
		return "", nil
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("socket directory: %w", err)
	}
	return dir, acct.takeOver(dir)
}
