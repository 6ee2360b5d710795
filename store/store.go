package store

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/asyncflow/asyncflow"
	_ "github.com/asyncflow/asyncflow/internal/expression" // evaluates retry expressions
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Store is a connection to the database. It is safe for concurrent use. Run must be running while
// it is used.
type Store struct {
	*core
	*hotPath
	*trees
	*counts
	*claims
	*tasks
	*settings
	*upkeep
}

// Open connects, and checks that the schema is current. An unreachable or outdated database is
// CodeUnavailable, with a message that says what to do.
func Open(ctx context.Context, cfg Config) (_ *Store, err error) {
	if cfg.Pool == 0 {
		cfg.Pool = 10
	}
	if cfg.HotPool == 0 {
		cfg.HotPool = 4
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Meter == nil {
		cfg.Meter = noMeter{}
	}
	cfg.DefaultQuotas = cfg.DefaultQuotas.Or(asyncflow.DefaultQuotas)
	s := newStore(newCore(cfg))
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err = s.connect(ctx); err != nil {
		return nil, err
	}
	if err = s.base.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')`).
		Scan(&s.distributed); err != nil {
		return nil, wrap(err, "store.Open")
	}
	if err = s.start(ctx); err != nil {
		return nil, err
	}
	s.Catalog.OnChange(s.forgetTypes)
	return s, s.Catalog.open(ctx)
}

// newStore puts the rooms together.
func newStore(c *core) *Store {
	h := newHotPath(c)
	t := &trees{core: c, hotPath: h, chunks: followUpChunks}
	n := &counts{core: c, minutes: newEndpointMinutes()}
	cl := &claims{core: c, hotPath: h, trees: t}
	ta := &tasks{core: c, hotPath: h, trees: t, counts: n, countTime: countTime}
	se := &settings{core: c, hotPath: h, trees: t, counts: n, creating: semaphore.NewWeighted(1)}
	return &Store{c, h, t, n, cl, ta, se,
		&upkeep{core: c, hotPath: h, trees: t, counts: n, tasks: ta, settings: se}}
}

// closePatience bounds how long Close waits for connections in use.
const closePatience = 5 * time.Second

// Close closes the connections, but doesn't wait for long for those in use.
func (s *Store) Close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if s.Catalog != nil {
			s.Catalog.close()
		}
		if s.base != nil {
			s.base.Close()
		}
		if s.hotPool != nil {
			s.hotPool.Close()
		}
	}()
	select {
	case <-closed:
	case <-time.After(closePatience):
	}
}

// Ping returns nil if the database answers and accepts writes, and its schema is current.
func (s *Store) Ping(ctx context.Context) error {
	if err := schema.Check(ctx, s.base, s.cfg.URL); err != nil {
		return err
	}
	var readOnly bool
	err := s.base.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean`).
		Scan(&readOnly)
	if err != nil {
		return postgres.ConnectError(s.cfg.URL, err)
	}
	if readOnly { // another host may accept writes now: only connecting checks that
		s.fate.Reset()
		return asyncflow.Errorf(asyncflow.CodeUnavailable, "the database is read-only")
	}
	return nil
}
