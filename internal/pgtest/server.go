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
	start := devpg.Start
	if cfg.DataDir == "" {
		NotOnCitus(t, ownServer)
		cfg.DataDir = Dir(t)
		if cfg.BinDir == "" && cfg.Major == 0 { // nobody chose which programs create the cluster
			start = startEmpty
		}
	}
	cfg, err := withChoices(cfg)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	server, err := start(context.Background(), cfg)
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
