package pgtest

import (
	"context"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// EmptyCluster is the empty cluster of another process.
type EmptyCluster struct{ emptyCluster }

// NewEmptyCluster returns one that keeps clusters in a directory.
func NewEmptyCluster(cache string) *EmptyCluster {
	return &EmptyCluster{emptyCluster{cache: cache}}
}

// Get is get.
func (e *EmptyCluster) Get() (dir string, kept bool, err error) { return e.get() }

// Start is start.
func (e *EmptyCluster) Start(ctx context.Context, cfg devpg.Config) (*devpg.Server, error) {
	return e.start(ctx, cfg)
}

// Usable, RemoveOld and MostKept are usable, removeOld and mostKept.
var (
	Usable    = usable
	RemoveOld = removeOld
)

const MostKept = mostKept
