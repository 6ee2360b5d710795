package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/news"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	wakeChannel = "asyncflow_wake"
	// ConfigChannel announces changes of tenants' configurations.
	ConfigChannel = "asyncflow_config"

	// notifyEvery is the least time between two NOTIFYs. Each takes a lock that is global to
	// the server. So several types share one round trip, and a busy type is announced only
	// once in a while.
	notifyEvery = 50 * time.Millisecond
	// notifyBytes is the length at which a notification is full; Postgres takes 8,000 bytes.
	notifyBytes = 6000
	// listenCheck is how often a silent LISTEN connection is pinged.
	listenCheck = 10 * time.Second
)

// Wakeups announce that a task of a type is ready, and when it is due: to the listeners of this
// node at once, to other nodes by NOTIFY. An announcement may get lost (a crash between COMMIT and
// NOTIFY); background jobs find such tasks.
type Wakeups struct {
	listeners news.Listeners
	store     *Core
	sender    string // stands for this node in its announcements
	config    *configNews

	mu      sync.Mutex
	pending map[config.TypeKey]time.Time
	kick    chan struct{}

	listening atomic.Bool
	losses    atomic.Uint64 // how often announcements may have been lost
}

func newWakeups(s *Core) *Wakeups {
	return &Wakeups{store: s, sender: strconv.FormatUint(rand.Uint64()|1, 10),
		config: newConfigNews(), pending: map[config.TypeKey]time.Time{},
		kick: make(chan struct{}, 1)}
}

// Listen returns a listener, which keeps news from now on.
func (w *Wakeups) Listen(topics news.Topics) *news.Listener { return w.listeners.Listen(topics) }

// Losses returns how often announcements may have been lost, so far.
func (w *Wakeups) Losses() uint64 { return w.losses.Load() }

// Listening reports whether this node gets announcements of other nodes now, as far as it knows.
func (s *Core) Listening() bool { return s.Wakeups.listening.Load() }

// Announce announces to every dispatcher that a task of the type is ready and due at a time. A
// zero time does nothing.
func (w *Wakeups) Announce(key config.TypeKey, at time.Time) {
	if at.IsZero() {
		return
	}
	w.store.Marks.Lower(key, at)
	w.store.KeyMarks.Lower(key, at)
	w.listeners.TellReady(key, at, w.store.Clock.Now())
	if !w.store.Config.Notify {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.pending[key]; !ok || at.Before(known) {
		w.pending[key] = at
	}
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// send notifies other nodes until ctx ends.
func (w *Wakeups) send(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.kick:
		}
		w.mu.Lock()
		pending := w.pending
		w.pending = map[config.TypeKey]time.Time{}
		w.mu.Unlock()
		if err := w.notify(ctx, pending); err != nil && ctx.Err() == nil {
			w.store.Log.Warn("NOTIFY failed; other nodes find the tasks by themselves", "error",
				err)
		}
		sleep.For(ctx, notifyEvery)
	}
}

// notify sends a line "sender tenant type microseconds" for each type, all as numbers (see
// tenantNumbers), many in a notification. It doesn't wait for the disk: Postgres
// makes a commit of every NOTIFY.
func (w *Wakeups) notify(ctx context.Context, pending map[config.TypeKey]time.Time) error {
	var payloads []string
	var lines []byte
	for key, at := range pending {
		tenant, number, ok := w.store.Catalog.numbersOf(key)
		if !ok { // it was deleted
			continue
		}
		lines = fmt.Appendf(lines, "%s %d %d %d\n", w.sender, tenant, number, at.UnixMicro())
		if len(lines) > notifyBytes {
			payloads = append(payloads, string(lines))
			lines = lines[:0]
		}
	}
	if len(lines) > 0 {
		payloads = append(payloads, string(lines))
	}
	if len(payloads) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	b.Queue(`SELECT set_config('synchronous_commit', 'off', true)`)
	b.Queue(`SELECT pg_notify($1, p) FROM unnest($2::text[]) p`, wakeChannel, payloads)
	return w.store.Base.SendBatch(ctx, b).Close()
}

// listen receives the announcements of other nodes until ctx ends. It connects again whenever
// the connection is lost, and at once if the server is another one.
func (w *Wakeups) listen(ctx context.Context) error {
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		server, left := w.store.prober.Within(ctx)
		err := w.listenOnce(server, func() { pause = 100 * time.Millisecond })
		if ctx.Err() == nil {
			w.store.Log.Warn("LISTEN connection lost, connecting again", "error", err)
			sleep.For(server, pause)
		}
		left()
	}
	return nil
}

func (w *Wakeups) listenOnce(ctx context.Context, connected func()) error {
	conn, err := w.store.group.ConnectToListen(ctx, w.store.Base.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN "+wakeChannel+"; LISTEN "+ConfigChannel); err != nil {
		return err
	}
	connected()
	if err := w.startOver(ctx); err != nil {
		return err
	}
	w.listening.Store(true)
	defer w.listening.Store(false)
	for {
		if err := w.receive(ctx, conn); err != nil {
			return err
		}
	}
}

// startOver is for a server that may be another one, or may have announced what nobody heard: the
// configuration is compared anew, and everything that waits for announcements looks for itself.
func (w *Wakeups) startOver(ctx context.Context) error {
	w.store.Catalog.noteSum(0, false) // the numbers may differ after a restore
	if err := w.store.Catalog.follow(ctx); err != nil {
		return err
	}
	w.store.Marks.Reset()
	w.store.KeyMarks.Reset()
	w.losses.Add(1)
	w.listeners.TellLost()
	return nil
}

// followServer is listen for a node without LISTEN: it starts over whenever the server is another
// one. It asks for it once in RefreshEvery, and at once if the prober has found another one.
func (w *Wakeups) followServer(ctx context.Context) error {
	known := ""
	for ctx.Err() == nil {
		server, left := w.store.prober.Within(ctx)
		var err error
		if known, err = w.startOverElsewhere(server, known); err != nil && server.Err() == nil {
			w.store.Log.Warn("can't refresh, trying again", "what", "server", "error", err)
		}
		sleep.For(server, RefreshEvery)
		left()
	}
	return nil
}

// startOverElsewhere starts over if the server isn't the known one. It returns the one that is
// known after that.
func (w *Wakeups) startOverElsewhere(ctx context.Context, known string) (string, error) {
	now, err := postgres.ServerOf(ctx, w.store.Base)
	if err != nil || now == known {
		return known, err
	}
	if err := w.startOver(ctx); err != nil {
		return known, err
	}
	return now, nil
}

// receive receives one notification, or pings the connection after a silence.
func (w *Wakeups) receive(ctx context.Context, conn *pgx.Conn) error {
	waitCtx, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	n, err := conn.WaitForNotification(waitCtx)
	switch {
	case err == nil && n.Channel == wakeChannel:
		w.received(n.Payload)
		return nil
	case err == nil:
		w.config.hear(n.Payload, w.store.Catalog)
		return nil
	case waitCtx.Err() != nil && ctx.Err() == nil && !conn.IsClosed():
		pingCtx, cancel := context.WithTimeout(ctx, postgres.ConnectTimeout)
		defer cancel()
		return conn.Ping(pingCtx)
	default:
		return err
	}
}

// received passes on the lines of notify, unless this node sent them. A line "0 tenant" comes from
// a submit by SQL (its sender is 0) and says that FollowUp has something to do. Any role of the
// database can send a line: what this node doesn't know is dropped.
func (w *Wakeups) received(payload string) {
	for line := range strings.Lines(payload) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] == w.sender {
			continue
		}
		tenant, err := strconv.ParseUint(f[1], 10, 32)
		if err != nil {
			continue
		}
		switch len(f) {
		case 2:
			if slug, ok := w.store.Catalog.tenantOf(uint32(tenant)); ok {
				w.store.TellFollowUp(slug)
			}
		case 4:
			w.receivedWake(uint32(tenant), f[2], f[3])
		}
	}
}

func (w *Wakeups) receivedWake(tenant uint32, number, micros string) {
	n, err1 := strconv.ParseInt(number, 10, 32)
	at, err2 := strconv.ParseInt(micros, 10, 64)
	key, ok := w.store.Catalog.keyOf(tenant, int32(n))
	if err1 != nil || err2 != nil || !ok {
		return
	}
	due := time.UnixMicro(at)
	w.store.Marks.Lower(key, due)
	w.store.KeyMarks.Lower(key, due)
	w.listeners.TellReady(key, due, w.store.Clock.Now())
}
