package pgtest

import (
	"context"
	"testing"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// Server starts a Postgres of the test's own, to be stopped or killed by it; it
// is stopped at the end of the test if it still runs. Without a DataDir it has a
// fresh one. To start a server again after its end, with the same data and
// addresses: Server(t, server.Config()).
func Server(t testing.TB, cfg devpg.Config) *devpg.Server {
	t.Helper()
	if cfg.DataDir == "" {
		cfg.DataDir = Dir(t)
	}
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
