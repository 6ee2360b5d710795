package store

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/semaphore"

	"github.com/asyncflow/asyncflow"
	_ "github.com/asyncflow/asyncflow/internal/expression" // evaluates retry expressions
	"github.com/asyncflow/asyncflow/store/internal/lowwater"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// Config configures a Store.
type Config struct {
	URL   string // postgres://…
	Node  string // this node's id, unique among the nodes of a database
	Roles string // what this node does, for the list of nodes
	Build string // version of this program, for the list of nodes

	// Pool bounds the connections for requests and governance; 0: 10.
	Pool int
	// HotPool bounds the connections that submit, lease and settle; 0: 4. With more of them,
	// batches are smaller.
	HotPool int
	// Notify announces new work to other nodes by NOTIFY. Without it (behind a transaction pooler,
	// or with another engine) dispatchers poll.
	Notify bool
	// NoRoles does all work as the user of URL, without a database role for each tenant.
	NoRoles bool
	// DefaultQuotas are the quotas of tenants without their own; 0: asyncflow.DefaultQuotas.
	DefaultQuotas asyncflow.Quotas
	// MaxContext is the limit of contexts in bytes. It and the quotas also apply to tasks that are
	// submitted by SQL. 0: this process doesn't set it.
	MaxContext int
	// PublicURL is where workers reach the API, for the contexts of tasks.
	PublicURL string
	// Meter counts the work of this node; nil: none does.
	Meter Meter

	Log *slog.Logger
}

// Store is a connection to the database. It is safe for concurrent use. Run must be running while
// it is used.
type Store struct {
	cfg Config
	log *slog.Logger
	// base serves cross-tenant work; use hotPool only through hot(). The work of a tenant goes
	// through of and hot, under the tenant's role.
	base    *pgxpool.Pool
	fate    *postgres.SharedFate // of base
	shares  *postgres.Shares     // of base
	hotPool *postgres.HotPool
	roles   *postgres.Roles

	creating *semaphore.Weighted // one tenant at a time

	Clock   *Clock
	Catalog *Catalog
	Wakeups *Wakeups

	nodes atomic.Int32 // how many nodes there are, as last seen
	apis  atomic.Int32 // how many of them take requests

	dispatchers atomic.Int32              // how many of them lease tasks
	joined      atomic.Pointer[time.Time] // when all other nodes know this node; nil: they don't yet
	numbers     *numbers
	churn       sync.Map // of TableSet.Key to *atomic.Int64: see Vacuum
	watched     *watchers
	marks       *lowwater.Marks[TypeKey]
	minutes     *endpointMinutes
	charges     submitCharges
	holders     *lockHolders

	tellLinger  func(tenant string, linger time.Duration) // see OnFollowUp
	edgeCursors sweepCursors[edgeCursor]
	treeCursors sweepCursors[fanOutKey]
	chunks      chunks // of FollowUp
	countTime   time.Duration
	distributed bool        // tenants are on several servers, see Distributed
	doubtful    atomic.Bool // leases may be committed that no node knows, see sure
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
	s := &Store{cfg: cfg, log: cfg.Log, creating: semaphore.NewWeighted(1), chunks: followUpChunks,
		countTime:  countTime,
		tellLinger: func(string, time.Duration) {}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	s.fate = &postgres.SharedFate{}
	base := postgres.PoolConfig{URL: cfg.URL, Size: cfg.Pool, NoRoles: cfg.NoRoles,
		Statement: postgres.BaseStatement, Fate: s.fate}
	if s.base, err = postgres.NewPool(ctx, base); err != nil {
		return nil, postgres.ConnectError(cfg.URL, err)
	}
	s.shares = postgres.NewShares(s.base, cfg.Pool)
	if s.hotPool, err = postgres.NewHotPool(ctx, cfg.URL, cfg.HotPool, cfg.NoRoles); err != nil {
		return nil, postgres.ConnectError(cfg.URL, err)
	}
	if err = schema.Check(ctx, s.base, s.cfg.URL); err != nil {
		return nil, err
	}
	if err = s.base.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')`).
		Scan(&s.distributed); err != nil {
		return nil, wrap(err, "store.Open")
	}
	if s.roles, err = postgres.NewRoles(ctx, s.base, cfg.NoRoles); err != nil {
		return nil, err
	}
	s.Clock = newClock(s.base)
	if err = s.Clock.refresh(ctx); err != nil {
		return nil, err
	}
	s.Catalog = newCatalog(s)
	s.Wakeups = newWakeups(s)
	s.numbers = newNumbers(s)
	s.watched = newWatchers()
	s.marks = lowwater.NewMarks[TypeKey]()
	s.minutes = newEndpointMinutes()
	s.holders = &lockHolders{limit: keptOutLimit, all: map[lockKey]lockHolder{}}
	s.Catalog.OnChange(s.forgetTypes)
	return s, s.Catalog.open(ctx)
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
