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
// nothing else but change how passwords are checked. Each server of this process begins as a copy
// of it: a copy costs a tenth of initdb. So their system identifier is the same.
var emptyCluster = sync.OnceValues(func() (string, error) {
	dir, _, err := newDir()
	if err != nil {
		return "", err
	}
	cfg, err := withChoices(devpg.Config{DataDir: dir})
	if err != nil {
		return "", err
	}
	server, err := devpg.Start(context.Background(), cfg)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	if err := checkPasswordsByMD5(ctx, server); err != nil {
		return "", errors.Join(err, server.Stop(ctx))
	}
	return dir, server.Stop(ctx)
})

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
