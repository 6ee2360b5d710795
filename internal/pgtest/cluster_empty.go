package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// emptyCluster returns the data directory of a server that was started and stopped, and did
// nothing else but change how passwords are checked. Each server of the tests begins as a copy of
// it: a copy costs a tenth of initdb. They have one system identifier, therefore.
var emptyCluster = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil { // without a home, each process makes one
		cache = ""
	}
	return emptyClusterIn(cache)
})

// emptyClusterIn is emptyCluster, with the user's cache directory: there the next processes find
// what the first one has made, until Postgres or its settings are others. "" keeps nothing.
func emptyClusterIn(cache string) (string, error) {
	dir, _, err := newDir()
	if err != nil {
		return "", err
	}
	cfg, err := withChoices(devpg.Config{DataDir: dir})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	key, err := devpg.ClusterKey(ctx, cfg)
	if err != nil {
		return "", err
	}
	kept := filepath.Join(cache, "asyncflow", "test-cluster-"+key)
	if _, err := os.Stat(kept); cache != "" && err == nil {
		return kept, nil
	}
	server, err := devpg.Start(ctx, cfg)
	if err != nil {
		return "", err
	}
	if err := checkPasswordsByMD5(ctx, server); err != nil {
		return "", errors.Join(err, server.Stop(ctx))
	}
	if err := server.Stop(ctx); err != nil {
		return "", err
	}
	if cache != "" {
		_ = keep(dir, kept) // the next process makes one, too
	}
	return dir, nil
}

// keep keeps a copy of a cluster under a name that it has only once it is complete. It fails if
// another process was faster.
func keep(cluster, name string) error {
	parent := filepath.Dir(name)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(parent, "test-cluster-new-")
	if err != nil {
		return err
	}
	leash, err := reap(staging)
	if err != nil {
		return errors.Join(err, os.RemoveAll(staging))
	}
	defer leash.Close() // removes what wasn't renamed
	if err := copyCluster(cluster, staging); err != nil {
		return err
	}
	return os.Rename(staging, name)
}

// copyEmptyCluster makes a directory the data directory of a new server.
func copyEmptyCluster(dir string) error {
	empty, err := emptyCluster()
	if err != nil {
		return err
	}
	return copyCluster(empty, dir)
}

// copyCluster copies the data directory of a stopped server.
func copyCluster(stopped, dir string) error {
	from := filepath.Join(stopped, "pgdata")
	to := filepath.Join(dir, "pgdata")
	if err := copyTree(from, to); err != nil {
		return err
	}
	password, err := os.ReadFile(filepath.Join(stopped, "password"))
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "password"), password, 0o600),
		chownLike(to, from))
}
