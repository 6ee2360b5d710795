package postgres

import (
	"context"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// probeCheck is how often a Prober looks at the connections.
	probeCheck = 200 * time.Millisecond
	// silentTime is how long a connection is silent before a Prober looks for the server: most
	// statements take less.
	silentTime = 500 * time.Millisecond
	// busyTime is how long the same silence leads to no further probe, once the server was found:
	// a statement takes long, or waits for a lock.
	busyTime = 3 * time.Second
	// probeTime bounds a probe. One may be silent for good, so the next ones don't wait for it.
	probeTime = time.Second
	// probesAtOnce is the most probes under way.
	probesAtOnce = 4
	// searchParts is how many times as long as its next pause a search took, once that is more than
	// probeCheck: a server that is lost for long, or too busy to answer, is asked less and less
	// often. The most is busyTime.
	searchParts = 20
	// presentFirst is how long after the start of a probe the server that was found last may
	// answer, before another one that takes writes is believed.
	presentFirst = 200 * time.Millisecond
	// replacedTime is how long the present server must be gone before a server is believed that it
	// replaced: an old primary that nobody stopped.
	replacedTime = 10 * time.Second
)

// Prober looks for the server that takes writes, while connections of its groups are silent or
// fail. After a failover it is another server: then it breaks all connections to the lost one, as
// each would wait for a deadline of its own otherwise, and ends the Era. It begins at most one
// connection to each host in probeCheck, less often if that leads to nothing, and none while all is
// well.
type Prober struct {
	hosts  []*pgx.ConnConfig // of one host each
	groups []*PoolGroup
	probes atomic.Int32 // under way

	mu        sync.Mutex
	present   server    // that was found last
	at        string    // the host where a probe found it last; "": none did yet
	found     time.Time // when the probe began that found it
	searching time.Time // since when connections are suspicious, but for pauses up to busyTime
	suspected time.Time // when connections were suspicious last
	next      time.Time // the earliest next probe
	era       context.Context
	end       context.CancelFunc
}

// NewProber returns the prober of a URL, for the pools of some groups. base leads to the server as
// it is now.
func NewProber(
	ctx context.Context, url string, base *pgxpool.Pool, groups ...*PoolGroup,
) (*Prober, error) {
	cfg, err := ConfigFor(url, nil, nil)
	if err != nil {
		return nil, err
	}
	return newProber(ctx, cfg, base, groups...)
}

func newProber(
	ctx context.Context, cfg *pgx.ConnConfig, base *pgxpool.Pool, groups ...*PoolGroup,
) (p *Prober, err error) {
	cfg.AfterConnect = nil
	nameSession(&cfg.Config)
	p = &Prober{hosts: hostsOf(cfg), groups: groups}
	p.era, p.end = context.WithCancel(context.Background())
	if p.present.database, err = ServerOf(ctx, base); err != nil {
		p.end()
		return nil, err
	}
	// without the rights for it, the timeline stays unknown; else adopt may learn it
	_ = base.QueryRow(ctx, timelineSQL).Scan(&p.present.cluster, &p.present.timeline)
	for _, g := range groups {
		g.start(p.present)
	}
	return p, nil
}

// hostsOf returns a configuration for each host. pgx tries several ways to a host one after the
// other, such as with TLS and then without (sslmode=prefer): they stay together, in that order. ask
// looks itself whether a host takes writes: with target_session_attrs, pgx would try the second way
// where the first one led to a standby.
func hostsOf(cfg *pgx.ConnConfig) (hosts []*pgx.ConnConfig) {
	for _, way := range waysOf(cfg) {
		if last := len(hosts) - 1; last >= 0 &&
			hostOf(hosts[last].Host, hosts[last].Port) == hostOf(way.Host, way.Port) {
			hosts[last].Fallbacks = append(hosts[last].Fallbacks, way)
			continue
		}
		one := cfg.Copy()
		one.ValidateConnect = nil
		one.Host, one.Port, one.TLSConfig, one.Fallbacks = way.Host, way.Port, way.TLSConfig, nil
		hosts = append(hosts, one)
	}
	return hosts
}

// waysOf returns all ways to the hosts of a configuration, in the order in which pgx tries them.
func waysOf(cfg *pgx.ConnConfig) []*pgconn.FallbackConfig {
	return slices.Insert(slices.Clone(cfg.Fallbacks), 0,
		&pgconn.FallbackConfig{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig})
}

// Era returns a context that ends when the server is another one.
func (p *Prober) Era() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.era
}

// Within returns a context that ends with ctx, or when the server is another one.
func (p *Prober) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.Era(), cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Run looks at the connections until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	var probing sync.WaitGroup
	defer probing.Wait()
	for {
		pause := time.Duration(float64(probeCheck) * (0.75 + rand.Float64()/2))
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		now := time.Now()
		suspicious := slices.ContainsFunc(p.groups,
			func(g *PoolGroup) bool { return g.suspicious(now) })
		if suspicious && p.probes.Load() < probesAtOnce && p.due(now) {
			p.probes.Add(1)
			probing.Go(func() {
				defer p.probes.Add(-1)
				p.probe(ctx, now)
			})
		}
	}
}

// due reports whether it is time for a probe, as connections are suspicious.
func (p *Prober) due(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.suspected) > busyTime {
		p.searching = now
	}
	p.suspected = now
	if now.Before(p.next) {
		return false
	}
	p.next = now.Add(min(now.Sub(p.searching)/searchParts, busyTime))
	return true
}

// probe asks all hosts at once.
func (p *Prober) probe(ctx context.Context, began time.Time) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	p.mu.Lock()
	present, at := p.present, p.at
	p.mu.Unlock()
	for _, g := range p.groups {
		if s, ok := g.laterServer(present); ok {
			present = s
		}
	}
	answers := make(chan answer, len(p.hosts))
	for _, host := range p.hosts {
		asking.Go(func() {
			a := ask(ctx, host)
			a.crowded = a.crowded && (at == "" || a.host == at) // a full standby says nothing
			answers <- a
		})
	}
	found := choose(present, answers, time.Until(began.Add(presentFirst)))
	if found.database != "" && p.adopt(found, began) {
		return
	}
	if found.crowded {
		p.pause(began)
	}
	for _, g := range p.groups {
		g.checkFailed()
	}
}

// pause is for a server that is there, but without a connection for a probe.
func (p *Prober) pause(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = time.Now().Add(busyTime)
	if began.After(p.searching) {
		p.searching = began // it isn't gone
	}
}

// answer is what a host says to a probe, or what choose makes of the answers.
type answer struct {
	server  // that takes writes, if one was found
	host    string
	crowded bool // the present server is there, or may be, without a connection for a probe
}

// choose returns the answer of the present server, or else of another one, once all hosts answered
// or the time of the present one is over: an old primary that was not stopped takes writes, too. It
// prefers a server to one that it replaced. It waits for all hosts if only a server is found that
// the present one has replaced. The answer is crowded if one was that it has heard.
func choose(present server, answers <-chan answer, wait time.Duration) (found answer) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	waited, crowded := false, false
	for range cap(answers) {
		for heard := false; !heard; {
			if waited && found.database != "" && !found.replacedBy(present) {
				return found
			}
			select {
			case a := <-answers:
				heard = true
				crowded = crowded || a.crowded
				switch {
				case a.database != "" && a.database == present.database:
					return a
				case found.database == "", found.replacedBy(a.server):
					found = a
				}
				found.crowded = crowded
			case <-timer.C:
				waited = true
			}
		}
	}
	return found
}

// ask returns which server is at a host, if it takes writes.
func ask(ctx context.Context, host *pgx.ConnConfig) (a answer) {
	a.host = hostOf(host.Host, host.Port)
	conn, err := pgx.ConnectConfig(ctx, host)
	if err != nil {
		a.crowded = pgerrcode.IsInsufficientResources(State(err))
		return a
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTime)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	row, err := firstRow(ctx, conn.PgConn(), writableSQL)
	if err != nil || string(row[0]) != "off" {
		return a
	}
	row, err = firstRow(ctx, conn.PgConn(), databaseSQL)
	if err != nil {
		return a
	}
	database := string(row[0])
	if a.server, err = timelineOf(ctx, conn.PgConn()); err != nil {
		return a
	}
	a.database = database
	return a
}

const writableSQL = `SELECT pg_catalog.current_setting('transaction_read_only')`

// adopt notes where the server is. It reports false for one that the present server replaced,
// unless that is gone for long. A probe that began before the one that found the present server
// says nothing.
func (p *Prober) adopt(a answer, began time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !began.After(p.found) {
		return true
	}
	if a.replacedBy(p.present) && (a.crowded || began.Sub(p.found) <= replacedTime ||
		began.Sub(p.searching) <= replacedTime) {
		return false
	}
	p.found, p.at = began, a.host
	for _, g := range p.groups {
		g.calmDown(began, a.host)
	}
	same := a.database == p.present.database
	if same && a.cluster == "" {
		return true // what is known of it stands
	}
	p.present = a.server
	for _, g := range p.groups {
		g.follow(a.server, began)
	}
	if same {
		return true
	}
	p.searching, p.next = began, time.Time{} // of the next server
	p.end()
	p.era, p.end = context.WithCancel(context.Background())
	return true
}

func hostOf(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// order puts the host where the server was found last before the other hosts.
func (f *PoolGroup) order(_ context.Context, cfg *pgx.ConnConfig) error {
	f.mu.Lock()
	first := f.first
	f.mu.Unlock()
	if first == "" || first == hostOf(cfg.Host, cfg.Port) {
		return nil
	}
	all := waysOf(cfg)
	slices.SortStableFunc(all, func(a, b *pgconn.FallbackConfig) int {
		rank := map[bool]int{true: 0, false: 1}
		return rank[hostOf(a.Host, a.Port) == first] - rank[hostOf(b.Host, b.Port) == first]
	})
	cfg.Host, cfg.Port, cfg.TLSConfig = all[0].Host, all[0].Port, all[0].TLSConfig
	cfg.Fallbacks = all[1:]
	return nil
}
