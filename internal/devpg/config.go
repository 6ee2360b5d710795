package devpg

import (
	"io"
	"os"
	"path/filepath"

	"github.com/asyncflow/asyncflow"
)

// Config configures a server. Only DataDir is required.
type Config struct {
	DataDir string // created if missing; see the package comment for what is in it
	// directory of initdb and postgres; empty: the usual places, or else fetched
	BinDir   string
	Major    int               // of a new cluster, 15 to 18; 0: that of the first programs found
	Offline  bool              // don't fetch programs
	CacheDir string            // of fetched programs; empty: pgfetch.CacheDir()
	Progress io.Writer         // shows the progress of a fetch; nil: nothing does
	Port     int               // TCP port on 127.0.0.1; 0: a free one
	Durable  bool              // false: a power loss may lose or break the data; for tests only
	Settings map[string]string // further postgresql.conf settings by name; they override ours
	Log      io.Writer         // gets the server's log; nil: DataDir/postgres.log
}

// validate returns the Config with an absolute DataDir, or a CodeInvalid error.
func (c Config) validate() (Config, error) {
	if c.DataDir == "" {
		return c, asyncflow.InvalidField("data_dir", "is required")
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, asyncflow.InvalidField("port", "must be within 0 and 65535, not %d", c.Port)
	}
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, asyncflow.InvalidField("data_dir", "is not a path: %v", err)
	}
	c.DataDir = dir
	return c, nil
}

// DefaultDataDir returns the directory for a user's data: /var/lib/asyncflow for root, as the
// server's user can't enter the home of root; for others $XDG_DATA_HOME/asyncflow or
// ~/.local/share/asyncflow. It fails if there is no home directory.
func DefaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/asyncflow", nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "asyncflow"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &asyncflow.Error{Code: asyncflow.CodeInvalid,
			Message: "no home directory to keep data in; name a data directory", Err: err}
	}
	return filepath.Join(home, ".local", "share", "asyncflow"), nil
}
