//go:build linux || darwin

package pgfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// timeout bounds a fetch, including the wait for another process that fetches.
const timeout = 10 * time.Minute

// Config configures a fetch.
type Config struct {
	Major    int       // 15 to 18; 0: DefaultMajor
	Dir      string    // the cache; empty: CacheDir()
	Progress io.Writer // shows the progress, with a bar on a terminal; nil: nothing does

	repository string // base URL of the archives of embedded-postgres; empty: its own
}

// errDamaged says that a package differs from the pinned one, or is incomplete. Then no other
// source is tried, since somebody should hear of it.
var errDamaged = errors.New("it is damaged")

// CacheDir returns the directory of fetched programs: asyncflow in the user's cache directory;
// for root (the server's user can't enter its home), /var/cache/asyncflow.
func CacheDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/cache/asyncflow", nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w", err)
	}
	return filepath.Join(dir, "asyncflow"), nil
}

// Cached returns the folder of the programs if they were fetched before, or else "".
func Cached(cfg Config) string {
	f, err := newFetch(cfg)
	if err != nil {
		return ""
	}
	return f.cached()
}

// Fetch returns the folder of the programs initdb and postgres. It fetches them unless they are
// in the cache. Anyone who may enter the cache may run them.
func Fetch(ctx context.Context, cfg Config) (string, error) {
	f, err := newFetch(cfg)
	if err != nil {
		return "", err
	}
	if dir := f.cached(); dir != "" {
		return dir, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := makeCache(f.Dir); err != nil {
		return "", err
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if dir := f.cached(); dir != "" {
		return dir, nil
	}
	return f.fetch(ctx, f.sources())
}

// fetch is a Config with values derived from it.
type fetch struct {
	Config
	version version
}

func newFetch(cfg Config) (*fetch, error) {
	if cfg.Major == 0 {
		cfg.Major = DefaultMajor
	}
	v, ok := versions[cfg.Major]
	if !ok {
		return nil, fmt.Errorf("there is no Postgres %d to fetch", cfg.Major)
	}
	if cfg.Progress == nil {
		cfg.Progress = io.Discard
	}
	var err error
	if cfg.Dir == "" {
		cfg.Dir, err = CacheDir()
	}
	return &fetch{Config: cfg, version: v}, err
}

// source is a place to fetch the programs from.
type source struct {
	name string // of its folder in the cache
	// get puts the programs into the empty folder dir; it may use the folder scratch. The caller
	// removes both afterwards.
	get func(ctx context.Context, scratch, dir string) error
}

// sources returns the sources for this system, the best first.
func (f *fetch) sources() []source {
	all := []source{{fmt.Sprintf("postgres-%s-archive", f.version.maven), f.fromArchive}}
	if npmSystem() == "" {
		return all
	}
	return append([]source{{fmt.Sprintf("postgres-%s-npm", f.version.npm), f.fromNPM}}, all...)
}

// cached returns the folder of programs that were fetched before, "" for none.
func (f *fetch) cached() string {
	for _, s := range f.sources() {
		bin := filepath.Join(f.Dir, s.name, "bin")
		if checkPrograms(bin) == nil {
			return bin
		}
	}
	return ""
}

// fetch tries the sources in turn.
func (f *fetch) fetch(ctx context.Context, sources []source) (string, error) {
	var failed error
	for _, s := range sources {
		err := f.fetchFrom(ctx, s)
		if err == nil {
			return filepath.Join(f.Dir, s.name, "bin"), nil
		}
		failed = errors.Join(failed, err)
		if errors.Is(err, errDamaged) || ctx.Err() != nil {
			break
		}
	}
	return "", failed
}

// fetchFrom fetches the programs from one source and renames their folder when it is complete.
// It first removes the leftovers of a killed process; we hold the lock.
func (f *fetch) fetchFrom(ctx context.Context, s source) error {
	const staging = "fetch-"
	leftovers, _ := filepath.Glob(filepath.Join(f.Dir, staging+"*"))
	for _, dir := range leftovers {
		_ = os.RemoveAll(dir)
	}
	scratch, err := os.MkdirTemp(f.Dir, staging)
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	dir := filepath.Join(scratch, "programs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask
		return err
	}
	if err := s.get(ctx, scratch, dir); err != nil {
		return err
	}
	if err := checkPrograms(filepath.Join(dir, "bin")); err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	final := filepath.Join(f.Dir, s.name)
	_ = os.RemoveAll(final) // an incomplete one, else cached would find it
	return os.Rename(dir, final)
}

// checkPrograms reports what is wrong with a folder of programs.
func checkPrograms(bin string) error {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(bin, name))
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
			return fmt.Errorf("%s is no program", filepath.Join(bin, name))
		}
	}
	return nil
}

// makeCache creates the cache and its missing parents. Everyone may enter root's cache, since
// its server runs as another user.
func makeCache(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("cache: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("cache: %w", err)
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chmod(dir, 0o755)
}
