package pgtest

import (
	"context"
	"testing"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// Server starts a separate Postgres for a test to stop or kill. It is stopped at the end of the
// test if it still runs. Without a DataDir it gets a new one. Server(t, server.Config()) starts
// a server again with the same data and addresses.
func Server(t testing.TB, cfg devpg.Config) *devpg.Server {
	t.Helper()
	if cfg.DataDir == "" {
		NotOnCitus(t, ownServer)
	}
	cfg = withDataDir(t, cfg)
	cfg, err := withChoices(cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	server, err := devpg.Start(context.Background(), cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return server
}

// withDataDir gives a server a directory with an empty cluster, unless the Config names one. Which
// programs create that cluster can't be chosen then, so a Config that chooses gets a bare
// directory.
func withDataDir(t testing.TB, cfg devpg.Config) devpg.Config {
	t.Helper()
	if cfg.DataDir != "" {
		return cfg
	}
	cfg.DataDir = Dir(t)
	if cfg.BinDir != "" || cfg.Major != 0 {
		return cfg
	}
	if err := copyEmptyCluster(cfg.DataDir); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return cfg
}
