package pgtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// PreparedServer is Server with a database postgres that prepare filled, once per process: each
// server is a copy of a stopped one. What Database says of prepare holds here, too.
func PreparedServer(
	t testing.TB, prepare func(ctx context.Context, url string) error,
) *devpg.Server {
	t.Helper()
	NotOnCitus(t, ownServer)
	dir := Dir(t)
	prepared, err := preparedCluster(prepare)
	if err != nil {
		t.Fatalf("pgtest: prepared server: %v", err)
	}
	if err = copyCluster(prepared, dir); err != nil {
		t.Fatalf("pgtest: prepared server: %v", err)
	}
	return Server(t, devpg.Config{DataDir: dir})
}

// preparedClusters holds the data directories of stopped servers, by the code of the function that
// filled each.
var preparedClusters sync.Map // of func() (string, error)

func preparedCluster(prepare func(context.Context, string) error) (string, error) {
	made, _ := preparedClusters.LoadOrStore(reflect.ValueOf(prepare).Pointer(),
		sync.OnceValues(func() (string, error) { return makePreparedCluster(prepare) }))
	return made.(func() (string, error))()
}

func makePreparedCluster(prepare func(context.Context, string) error) (string, error) {
	return stoppedCluster(startEmpty, func(ctx context.Context, server *devpg.Server) error {
		if err := prepare(ctx, server.URL("postgres")); err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
		return nil
	})
}

// stoppedCluster starts a server in a new directory, fills and stops it, and returns the directory.
func stoppedCluster(
	start func(context.Context, devpg.Config) (*devpg.Server, error),
	fill func(context.Context, *devpg.Server) error,
) (dir string, err error) {
	dir, _, err = newDir()
	if err != nil {
		return "", err
	}
	cfg, err := withChoices(devpg.Config{DataDir: dir})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	server, err := start(ctx, cfg)
	if err != nil {
		return "", err
	}
	return dir, errors.Join(fill(ctx, server), server.Stop(ctx))
}
