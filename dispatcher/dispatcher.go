package dispatcher

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Sender makes attempts at one endpoint, in one request, and returns what came of each,
// in their order, within their timeout.
type Sender interface {
	Send(ctx context.Context, all []asyncflow.Delivery) []asyncflow.Outcome
}

// Config holds the limits of a node.
type Config struct {
	// Concurrency is the most tasks that the node holds at once; 0: 1024.
	Concurrency int
	// ContextBytes bounds the memory for the contexts of these tasks, and for outputs, and
	// what tasks go on with, that aren't written yet; 0: 64 MiB. See load.
	ContextBytes int
	// Grace is how long attempts under way may take to end after a stop; 0: 20 s.
	Grace time.Duration
	// Poll is the mean interval, for the whole cluster, at which an idle type is
	// looked at when there are no wake-ups from other nodes; 0: there are some.
	Poll time.Duration

	Log *slog.Logger
}

// leasers is how many types are leased from at once.
const leasers = 2

// Dispatcher leases and attempts tasks.
type Dispatcher struct {
	cfg    Config
	store  *store.Store
	sender Sender
	agenda *agenda
	slots  *slots
	log    *slog.Logger

	stopping, sending context.Context // end when no attempt is to begin, and when those under way are cut off
	stop, cutOff      context.CancelFunc

	attempts  sync.WaitGroup // leased tasks that are not settled yet
	held      *held          // how many they are, by type
	underway  *underway
	load      *load
	chores    chores
	crew      crew
	crowd     crowd
	gathering gathering
	door      door
	waiting   atomic.Int32 // batches of new tasks that wait to be handed over
	rates     *rates
	patients  patients
	holding   *holding
}

// New returns a dispatcher. It hears of new tasks from the store's wake-ups.
func New(s *store.Store, sender Sender, cfg Config) *Dispatcher {
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
	d := &Dispatcher{cfg: cfg, store: s, sender: sender, log: cfg.Log,
		agenda: newAgenda(s.Clock.Now), held: newHeld(), underway: newUnderway(), load: newLoad(cfg.ContextBytes), holding: newHolding(),
		crowd: crowd{endpoints: map[string]int{}}, gathering: gathering{open: map[string]*batch{}},
		rates:    newRates(s.Dispatchers, s.Joining),
		patients: patients{inRow: map[string]int{}, changing: map[string]bool{}}}
	d.stopping, d.stop = context.WithCancel(context.Background())
	d.sending, d.cutOff = context.WithCancel(context.Background())
	d.slots = newSlots(cfg.Concurrency, func(key store.TypeKey) { d.agenda.wake(key, s.Clock.Now()) })
	s.Wakeups.Subscribe(d.agenda.wake, d.wakeAll)
	s.Catalog.OnChange(d.wakeTenant)
	s.Catalog.OnChange(d.forgetEndpoints)
	s.HandTo(d)
	return d
}

// InFlight returns how many tasks the node holds: leased and not settled.
func (d *Dispatcher) InFlight() int { return d.slots.held() }

// wakeAll has every type looked at: news may have been missed.
func (d *Dispatcher) wakeAll() {
	now := d.store.Clock.Now()
	for t := range d.store.Catalog.Types() {
		d.agenda.wake(t.Key(), now)
	}
}

// wakeTenant has every type of a tenant looked at.
func (d *Dispatcher) wakeTenant(tenant string) {
	now := d.store.Clock.Now()
	for _, t := range d.store.Catalog.TypesOf(tenant) {
		d.agenda.wake(t.Key(), now)
	}
}

// Run leases and attempts tasks until ctx ends, and then until what it holds is
// settled.
func (d *Dispatcher) Run(ctx context.Context) error {
	defer d.cutOff()
	defer d.crew.dismiss()
	defer context.AfterFunc(ctx, d.stop)()
	d.wakeAll()
	d.door.set(true)
	var g errgroup.Group
	for range leasers {
		g.Go(func() error { return d.leaseLoop(ctx) })
	}
	err := g.Wait()
	d.door.set(false)
	d.stop()
	d.sendOpen(func(store.TypeKey) bool { return true }) // back to where they were
	d.drain()
	return err
}

// drain waits for the attempts under way, cut off after the grace, and the chores.
func (d *Dispatcher) drain() {
	if n := d.slots.held(); n > 0 {
		d.log.Info("draining", "attempts", n, "grace", d.cfg.Grace)
	}
	timer := time.AfterFunc(d.cfg.Grace, d.cutOff)
	defer timer.Stop()
	d.attempts.Wait()
	d.chores.end()
}

func (d *Dispatcher) leaseLoop(ctx context.Context) error {
	for {
		key, ok := d.agenda.take(ctx)
		if !ok {
			return nil
		}
		d.leaseOnce(ctx, key)
	}
}

// pauses after a lease that found nothing where something is due (another node
// is about to take it), and after a failure.
const (
	contendedPause = 20 * time.Millisecond
	failurePause   = time.Second

	// A type that the node has no room for is looked at when slots are given back, but no
	// more often than this; and after a while, as the number of nodes may have changed. So is
	// one of which something was to come in line that nobody has told of.
	fullPause = 2 * time.Millisecond
	fullLook  = time.Second

	// leaseTime bounds one lease against a database that doesn't answer.
	leaseTime = 10 * time.Second
)

// leaseOnce leases from one type and starts the attempts.
func (d *Dispatcher) leaseOnce(ctx context.Context, key store.TypeKey) {
	t, n := d.takeRoom(ctx, key)
	if n == 0 { // others that could go with those that wait don't come now
		d.sendOpen(func(k store.TypeKey) bool { return k == key })
		return
	}
	leasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaseTime)
	leases, next, more, err := d.lease(leasing, t, n)
	cancel()
	d.unreserve(t, n-len(leases))
	d.start(t, leases)
	now := d.store.Clock.Now()
	switch {
	case err != nil:
		d.log.Warn("lease failed, trying again", "tenant", key.Tenant, "type", key.Type, "error", err)
		next = now.Add(failurePause)
	case len(leases) < n && !more && !next.IsZero() && !next.After(now):
		next = now.Add(contendedPause)
	case next.IsZero() && d.cfg.Poll > 0:
		next = now.Add(d.pollPause())
	case len(leases) < n && !more:
		d.agenda.drained(key)
	}
	d.agenda.put(key, next, now.Add(t.ScheduleInterval.Std()))
}

// lease leases up to n tasks of a type, for which slots were taken, by its limits. more
// tells that tasks were in the way, which are not any more.
func (d *Dispatcher) lease(ctx context.Context, t *store.Type, n int) (leases []asyncflow.Lease, next time.Time, more bool, err error) {
	now, free := d.store.Clock.Now(), d.slots.rest()+n
	held := d.holding.has(t.Key())
	if room := d.endpointRoom(t, free, n); !held && !t.Guarded(now) && room > 0 {
		leases, next, err = d.store.Lease(ctx, t, min(n, room))
		return leases, next, false, err
	}
	of := rateKey{t.Tenant, "type", t.Name}
	if !t.Rate.IsZero() {
		tokens, at := d.rates.look(of, t.Rate.PerSecond(), now)
		if tokens == 0 {
			return nil, at, false, nil
		}
		n = min(n, tokens)
	}
	var a *admission
	g, err := d.store.LeaseGuarded(ctx, t, n, func(inFlight store.InFlight) store.Admission {
		a = d.admission(t, now, inFlight, free)
		return a
	})
	if !t.Rate.IsZero() {
		d.rates.take(of, t.Rate.PerSecond(), now, len(g.Leases))
	}
	switch {
	case g.Busy:
	case g.Held:
		d.holding.set(t.Key(), true)
	case err == nil:
		d.holding.set(t.Key(), false)
	}
	if a != nil && !a.again.IsZero() && (g.Next.IsZero() || a.again.Before(g.Next)) {
		g.Next = a.again
	}
	return g.Leases, g.Next, g.Filed, err
}

// takeRoom takes slots for a type and returns it as it is then: the wait for them may
// have been long. Without any slots there is nothing left to do for the type now.
func (d *Dispatcher) takeRoom(ctx context.Context, key store.TypeKey) (*store.Type, int) {
	_, room := d.room(key, 0)
	if room == 0 {
		return nil, 0
	}
	n := d.slots.take(ctx, room)
	d.door.mu.Lock()
	defer d.door.mu.Unlock()
	t, room := d.room(key, n)
	d.slots.give(max(0, n-room))
	n = min(n, room)
	if n > 0 {
		d.reserve(t, n)
	}
	return t, n
}

// room returns a type and how many tasks of it may be leased; for so many slots were taken
// already. Without any it is looked at again when it is resumed, when slots are given
// back, or, while it is being ramped up, in a moment.
func (d *Dispatcher) room(key store.TypeKey, taken int) (*store.Type, int) {
	t, err := d.store.Catalog.Type(key.Tenant, key.Type)
	if err != nil {
		d.agenda.forget(key)
		d.held.forget(key)
		d.load.forget(key)
		return nil, 0
	}
	gives := d.slots.given()
	now := d.store.Clock.Now()
	room, again := d.roomOf(t, now, taken, 0)
	room = min(room, t.ScheduleLimit)
	switch {
	case t.Paused():
		d.agenda.put(key, time.Time{}, time.Time{})
	case room == 0:
		d.agenda.put(key, again, now.Add(fullPause))
		d.slots.await(key, gives)
	}
	return t, room
}

// roomOf returns how many tasks of a type may be taken, whatever the endpoints of its
// stages allow; for so many slots were taken already, and so many of its tasks have ended.
// Without any, again is when to look again.
func (d *Dispatcher) roomOf(t *store.Type, now time.Time, taken, ended int) (room int, again time.Time) {
	room = t.Room(d.cfg.Concurrency, now)
	if room < d.cfg.Concurrency {
		ofType, _ := d.held.count(t.Key())
		room = max(0, room-ofType)
	}
	ofTenant, again := d.tenantRoom(t.Tenant, now)
	room = min(room, d.load.room(t.Key()))
	if room == 0 {
		again = now.Add(contendedPause)
	}
	return max(0, min(room, d.fair(t.Key(), taken, ended, now), ofTenant)), again
}

// latest returns the type as it is now: another node may have registered an endpoint
// this second.
func (d *Dispatcher) latest(t *store.Type, leases []asyncflow.Lease) *store.Type {
	now := d.current(t)
	for _, l := range leases {
		if now.Serves(l.Stage) {
			continue
		}
		if err := d.store.Catalog.RefreshTenant(d.stopping, t.Tenant); err != nil &&
			d.stopping.Err() == nil {
			d.log.Warn("can't refresh the catalog", "error", err)
		}
		return d.current(t)
	}
	return now
}

// pollPause returns mean·(½+random)·nodes: the more nodes, the rarer each looks,
// and they spread out.
func (d *Dispatcher) pollPause() time.Duration {
	return time.Duration(float64(d.cfg.Poll) * (0.5 + rand.Float64()) * float64(d.store.Nodes()))
}
