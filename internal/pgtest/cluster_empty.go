package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// emptyCluster is the data directory of a server that was started and stopped, and did nothing else
// but change how passwords are checked. Its databases have no maps; see removeMaps. Each server of
// the tests begins as a copy of it: a copy costs a tenth of initdb. They have one system
// identifier, therefore.
type emptyCluster struct {
	cache string // where clusters are kept for the next processes; "" keeps none

	mu   sync.Mutex
	dir  string // "" before the first call
	kept bool   // dir is in the cache
}

// empty returns the empty cluster of this process.
var empty = sync.OnceValue(func() *emptyCluster {
	cache, err := os.UserCacheDir()
	if err != nil { // without a home, each process makes one
		return &emptyCluster{}
	}
	return &emptyCluster{cache: filepath.Join(cache, "asyncflow-test")}
})

// startEmpty starts a server with a new cluster, in an empty directory.
func startEmpty(ctx context.Context, cfg devpg.Config) (*devpg.Server, error) {
	return empty().start(ctx, cfg)
}

// start starts a server on a copy of the empty cluster. If that fails and the cluster was kept by
// another process, it is taken for broken: a new one takes its place, once in a process.
func (e *emptyCluster) start(ctx context.Context, cfg devpg.Config) (*devpg.Server, error) {
	from, kept, err := e.get()
	if err != nil {
		return nil, err
	}
	server, err := startCopy(ctx, from, cfg)
	if err == nil || !kept {
		return server, err
	}
	if from, err = e.replace(from); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(filepath.Join(cfg.DataDir, "pgdata")); err != nil {
		return nil, err
	}
	return startCopy(ctx, from, cfg)
}

func startCopy(ctx context.Context, from string, cfg devpg.Config) (*devpg.Server, error) {
	if err := copyCluster(from, cfg.DataDir); err != nil {
		return nil, err
	}
	return devpg.Start(ctx, cfg)
}

// get returns the data directory, and whether another process may have made it.
func (e *emptyCluster) get() (dir string, kept bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dir == "" {
		e.dir, e.kept, err = e.findOrMake()
	}
	return e.dir, e.kept, err
}

// replace puts a new cluster in the place of a broken one, unless that has happened.
func (e *emptyCluster) replace(broken string) (dir string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.dir != broken {
		return e.dir, nil
	}
	_ = discard(broken) // or else the next process replaces it, too
	e.dir, err = makeCluster(broken)
	e.kept = false
	return e.dir, err
}

func (e *emptyCluster) findOrMake() (dir string, kept bool, err error) {
	dir, leash, err := newDir()
	if err != nil {
		return "", false, err
	}
	defer leash.Close()
	cfg, err := withChoices(devpg.Config{DataDir: dir})
	if err != nil {
		return "", false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	key, err := devpg.ClusterKey(ctx, cfg)
	if err != nil {
		return "", false, err
	}
	name := ""
	if e.cache != "" {
		name = keptName(e.cache, key)
	}
	if name != "" && usable(name) {
		return name, true, nil
	}
	dir, err = makeCluster(name)
	return dir, false, err
}

// makeCluster makes an empty cluster for this process, and keeps a copy under a name, unless that
// is "".
func makeCluster(name string) (string, error) {
	dir, err := stoppedCluster(devpg.Start, checkPasswordsByMD5)
	if err != nil {
		return "", err
	}
	if err := removeMaps(dir); err != nil {
		return "", err
	}
	if name != "" {
		_ = keep(dir, name) // the next process makes one, too
	}
	return dir, nil
}

// removeMaps removes the free space maps and the visibility maps of a stopped server's databases.
// They are a quarter of the files of an empty database, and are copied with it for each test.
// Postgres does without, and makes those again that it comes to need.
func removeMaps(dir string) error {
	for _, kind := range []string{"fsm", "vm"} {
		maps, err := filepath.Glob(filepath.Join(dir, "pgdata", "base", "*", "*_"+kind))
		if err != nil {
			return err
		}
		for _, name := range maps {
			if err := os.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyCluster copies the data directory of a stopped server.
func copyCluster(stopped, dir string) error {
	from := filepath.Join(stopped, "pgdata")
	to := filepath.Join(dir, "pgdata")
	if err := copyTree(from, to, false); err != nil {
		return err
	}
	password, err := os.ReadFile(filepath.Join(stopped, "password"))
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "password"), password, 0o600),
		chownLike(to, from))
}
