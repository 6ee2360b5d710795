//go:build !linux && !darwin

package devpg

import (
	"context"

	"github.com/asyncflow/asyncflow"
)

// Server would be a running Postgres; this system is not supported.
type Server struct{}

// Start fails: running Postgres as a child is known to work on Linux and macOS
// only.
func Start(context.Context, Config) (*Server, error) { return nil, errUnsupported() }

// ClusterKey fails, as Start does.
func ClusterKey(context.Context, Config) (string, error) { return "", errUnsupported() }

func errUnsupported() error {
	return asyncflow.Errorf(asyncflow.CodeUnavailable,
		"a Postgres of our own runs on Linux and macOS only; set DATABASE_URL and run asyncflow "+
			"serve, or run docker compose up")
}

func (*Server) URL(string) string                            { return "" }
func (*Server) Config() Config                               { return Config{} }
func (*Server) PID() int                                     { return 0 }
func (*Server) Done() <-chan struct{}                        { return nil }
func (*Server) Err() error                                   { return nil }
func (*Server) Stop(context.Context) error                   { return nil }
func (*Server) Kill() error                                  { return nil }
func (*Server) EnsureDatabase(context.Context, string) error { return nil }
