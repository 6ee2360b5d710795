package dispatcher

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/dispatcher/internal/agenda"
	"github.com/asyncflow/asyncflow/dispatcher/internal/ledger"
	"github.com/asyncflow/asyncflow/dispatcher/internal/pool"
	"github.com/asyncflow/asyncflow/dispatcher/internal/rates"
	"github.com/asyncflow/asyncflow/dispatcher/internal/slots"
	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store"
)

// Sender makes attempts at one endpoint, in one request. It returns the outcome of each, in their
// order, within their timeout.
type Sender interface {
	Send(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome
}

// Config holds the limits of a node.
type Config struct {
	// Concurrency is the most tasks in flight on the node at once; 0: 1024.
	Concurrency int
	// ContextBytes is the byte budget for the contexts of these tasks, and for outputs and contexts
	// of next stages that aren't written yet; 0: 64 MiB. See Ledger.
	ContextBytes int
	// Grace is how long attempts under way may take to end after a stop; 0: 20 s.
	Grace time.Duration
	// Poll is the mean interval, for the whole cluster, at which nodes look at an idle type if they
	// get no wake-ups from each other; 0: they do get wake-ups.
	Poll time.Duration

	Log *slog.Logger
}

// Dispatcher leases and attempts tasks.
type Dispatcher struct {
	cfg       Config
	store     *store.Store
	committer *Committer
	sender    Sender
	*capacity // with the ledger and the rates
	agenda    *agenda.Agenda[store.TypeKey]
	log       *slog.Logger

	// stopping ends when no more attempts may begin, sending when the attempts under way are cut
	// off.
	stopping, sending context.Context
	stop, cutOff      context.CancelFunc

	blocked  *blockedTypes
	locked   lockedTenants
	others   others
	breakers *breakers
	batches  batches        // that may take more tasks
	pasts    *slots.Bounded // of reads: see readPast
	workers  pool.Pool
	jobs     jobs
}

// New returns the dispatcher of a node. While it runs, tasks that are submitted to the committer
// may begin at once. It hears of other tasks by the store's news. Call New before the first
// submit.
func New(c *Committer, sender Sender, cfg Config) *Dispatcher {
	if cfg.Concurrency == 0 {
		cfg.Concurrency = 1024
	}
	if cfg.ContextBytes == 0 {
		cfg.ContextBytes = 64 << 20
	}
	if cfg.Grace == 0 {
		cfg.Grace = 20 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := c.store
	d := &Dispatcher{cfg: cfg, store: s, committer: c, sender: sender, log: cfg.Log,
		agenda:  agenda.New[store.TypeKey](s.Clock.Now, fullLook),
		blocked: newBlockedTypes(),
		locked:  lockedTenants{tenants: map[string]time.Time{}},
		batches: batches{open: map[string]*sharedDelivery{}},
		pasts:   slots.NewBounded(pastReads, tenantPastReads)}
	d.breakers = newBreakers(s, cfg.Log, &d.jobs)
	d.stopping, d.stop = context.WithCancel(context.Background())
	d.sending, d.cutOff = context.WithCancel(context.Background())
	d.capacity = &capacity{store: s, agenda: d.agenda, most: cfg.Concurrency,
		rates: rates.New(s.Dispatchers, s.Joining),
		ledger: ledger.New(cfg.Concurrency, cfg.ContextBytes, d.idle,
			func(key store.TypeKey) { d.agenda.Wake(key, s.Clock.Now()) })}
	c.join(d)
	return d
}

// InFlight returns how many tasks are in flight on the node: leased and not settled.
func (d *Dispatcher) InFlight() int { return d.ledger.InFlight() }

// Concurrency returns the most tasks in flight on the node.
func (d *Dispatcher) Concurrency() int { return d.cfg.Concurrency }

// wakeAll puts every type on the agenda for now: wake-ups may have been lost.
func (d *Dispatcher) wakeAll() {
	now := d.store.Clock.Now()
	for t := range d.store.Catalog.Types() {
		d.agenda.Wake(t.Key(), now)
	}
}

// hear puts types with news on the agenda.
func (d *Dispatcher) hear(news store.News) {
	wakeTime := d.wakeTime()
	for key, announced := range news.Ready {
		for _, at := range []time.Time{announced.Due, announced.Later} {
			if !at.IsZero() {
				d.agenda.Wake(key, wakeTime(at))
			}
		}
	}
	if news.Lost {
		d.wakeAll()
	}
	for tenant := range news.Changed {
		d.wakeTenant(tenant)
	}
}

// idle reports whether no task of a type stands in line, as far as this node knows. If some may,
// busy is for how long. It reads the news first: a task that begins at once must not overtake one
// that was put in line before.
func (d *Dispatcher) idle(key store.TypeKey) (empty bool, busy time.Duration) {
	d.committer.hear()
	return d.agenda.Idle(key)
}

// wakeTenant puts the types of a tenant on the agenda for now that may be leased from, after a
// change of its configuration: what was not allowed may be allowed now.
func (d *Dispatcher) wakeTenant(tenant string) {
	now := d.store.Clock.Now()
	for _, t := range d.store.Catalog.TypesOf(tenant) {
		if idle, _ := d.agenda.Idle(t.Key()); !idle || d.blocked.has(t.Key()) {
			d.agenda.Wake(t.Key(), now)
		}
	}
}

// tidyEvery is how often a node drops what it keeps for types that are deleted or idle.
const tidyEvery = time.Minute

func (d *Dispatcher) tidyLoop(ctx context.Context) error {
	for ctx.Err() == nil {
		sleep.For(ctx, tidyEvery)
		d.tidy()
	}
	return nil
}

// tidy drops what the node keeps for deleted types and endpoints, and what it learned of types that
// are idle. These stay on the agenda: without an entry, the next task of a type could not begin at
// once, but would be leased.
func (d *Dispatcher) tidy() {
	gone := func(key store.TypeKey) bool {
		_, err := d.store.Catalog.Type(key.Tenant, key.Type)
		return asyncflow.CodeOf(err) == asyncflow.CodeNotFound
	}
	d.agenda.ForgetAll(gone)
	d.ledger.ForgetIdle(gone)
	d.blocked.forget(gone)
	d.locked.forget(d.store.Clock.Now())
	d.breakers.forget()
}

// Run leases and attempts tasks until ctx ends, and then until what is in flight is settled.
func (d *Dispatcher) Run(ctx context.Context) error {
	defer d.cutOff()
	defer d.workers.Dismiss()
	defer context.AfterFunc(ctx, d.stop)()
	d.wakeAll()
	d.ledger.AllowNew(true)
	var g errgroup.Group
	for range leasers {
		g.Go(func() error { return d.leaseLoop(ctx) })
	}
	g.Go(func() error { return d.tidyLoop(ctx) })
	err := g.Wait()
	d.ledger.AllowNew(false)
	d.stop()
	d.sendOpen(func(store.TypeKey) bool { return true }) // they are given back
	d.drain()
	return err
}

// drain waits for the jobs and for the attempts under way, which it cuts off after the grace.
func (d *Dispatcher) drain() {
	if n := d.InFlight(); n > 0 {
		d.log.Info("draining", "attempts", n, "grace", d.cfg.Grace)
	}
	timer := time.AfterFunc(d.cfg.Grace, d.cutOff)
	defer timer.Stop()
	d.ledger.AwaitEmpty()
	d.jobs.end()
}

// currentType returns a type from the catalog, or t if the type is gone.
func currentType(s *store.Store, t *store.Type) *store.Type {
	now, err := s.Catalog.Type(t.Tenant, t.Name)
	if err != nil {
		return t
	}
	return now
}

// refreshed returns a type as it stands in the database now.
func (d *Dispatcher) refreshed(t *store.Type) *store.Type {
	err := d.store.Catalog.RefreshTenant(d.stopping, t.Tenant)
	if err != nil && d.stopping.Err() == nil {
		d.log.Warn("can't refresh the catalog", "error", err)
	}
	return currentType(d.store, t)
}

// pollPause returns mean·(½+random)·nodes. With more nodes each looks less often; the random
// part spreads them out.
func (d *Dispatcher) pollPause() time.Duration {
	return time.Duration(float64(d.cfg.Poll) * (0.5 + rand.Float64()) * float64(d.store.Nodes()))
}
