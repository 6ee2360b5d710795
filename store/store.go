package store

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/claims"
	"github.com/asyncflow/asyncflow/store/internal/counts"
	"github.com/asyncflow/asyncflow/store/internal/history"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/news"
	"github.com/asyncflow/asyncflow/store/internal/settings"
	"github.com/asyncflow/asyncflow/store/internal/tasks"
	"github.com/asyncflow/asyncflow/store/internal/trees"
	"github.com/asyncflow/asyncflow/store/internal/upkeep"
)

// Store is a connection to the database. It is safe for concurrent use. Run must be running while
// it is used. Its methods are the rooms' methods.
type Store struct {
	Clock   *Clock
	Catalog *Catalog
	Wakeups *Wakeups

	core    *catalog.Core
	changes *news.Listener // of the configuration, see forgetTypes
	*hotRoom
	*treesRoom
	*countsRoom
	*historyRoom
	*claimsRoom
	*tasksRoom
	*settingsRoom
	*upkeepRoom
}

// The rooms go by unexported names here, so that only their methods are promoted to a Store.
type (
	hotRoom      = hot.Path
	treesRoom    = trees.Trees
	countsRoom   = counts.Counts
	historyRoom  = history.History
	claimsRoom   = claims.Claims
	tasksRoom    = tasks.Tasks
	settingsRoom = settings.Settings
	upkeepRoom   = upkeep.Upkeep
)

// Open connects, and checks that the schema is current. An unreachable or outdated database is
// CodeUnavailable, with a message that says what to do.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	core, err := catalog.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, core)
	if err != nil {
		core.Close()
		return nil, err
	}
	return s, nil
}

// newStore puts the rooms together, and fills the catalog.
func newStore(ctx context.Context, core *catalog.Core) (*Store, error) {
	path := hot.Open(core)
	s := &Store{Clock: core.Clock, Catalog: core.Catalog, Wakeups: core.Wakeups, core: core,
		hotRoom: path, treesRoom: trees.New(core, path), countsRoom: counts.New(core)}
	s.historyRoom = history.New(core, s.countsRoom)
	s.claimsRoom = claims.New(core, path, s.treesRoom)
	s.tasksRoom = tasks.New(core, path, s.treesRoom, s.countsRoom)
	s.settingsRoom = settings.New(core, s.countsRoom)
	s.upkeepRoom = upkeep.New(core, path, s.tasksRoom)
	s.changes = core.Wakeups.Listen(news.Topics{Config: true})
	return s, core.Load(ctx)
}

// Close closes the connections, but doesn't wait for long for connections in use.
func (s *Store) Close() { s.core.Close() }

// Ping returns nil if the database answers and accepts writes, and the schema asyncflow is current.
func (s *Store) Ping(ctx context.Context) error { return s.core.Ping(ctx) }
