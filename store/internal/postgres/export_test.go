package postgres

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// OrderHosts puts the hosts of a configuration in order, for the one where the server was found.
func OrderHosts(found string, cfg *pgx.ConnConfig) error {
	return FoundAt(found).order(context.Background(), cfg)
}

// FoundAt returns a group with a server that was found at a host.
func FoundAt(host string) *PoolGroup { return &PoolGroup{first: host} }

// Replace is Server.replace.
func Replace(s Server, cfg *pgx.ConnConfig) { s.replace(&cfg.Config) }

// Port returns a port as text.
func Port(port uint16) string { return strconv.Itoa(int(port)) }

// ProbedHosts returns the configurations by which a Prober asks the hosts of a URL.
func ProbedHosts(url string) ([]*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	return hostsOf(cfg), nil
}

// Due is due.
func (p *Prober) Due(now time.Time) bool { return p.due(now) }

// Probe is probe, now.
func (p *Prober) Probe(ctx context.Context) { p.probe(ctx, time.Now()) }

// ProbeSince is a probe that began already.
func (p *Prober) ProbeSince(ctx context.Context, began time.Time) { p.probe(ctx, began) }

// Suspicious is suspicious, now.
func (f *PoolGroup) Suspicious() bool { return f.suspicious(time.Now()) }

// Choose returns which of the servers of all hosts that take writes is chosen, given their answers
// so far, and whether one is full. An empty one is a host without such a server, and "full" one
// without a connection. One such as "old@1" comes with a timeline.
func Choose(present string, wait time.Duration, hosts int, servers ...string) string {
	answers := make(chan answer, hosts)
	for _, name := range servers {
		if name == "full" {
			answers <- answer{crowded: true}
			continue
		}
		answers <- answer{server: serverNamed(name)}
	}
	found := choose(serverNamed(present), answers, wait)
	if found.crowded {
		return found.database + ", full"
	}
	return found.database
}

func serverNamed(name string) (s server) {
	var known bool
	s.database, s.timeline, known = strings.Cut(name, "@")
	if known {
		s.cluster = "one"
	}
	return s
}

// Present returns the cluster and the timeline of the server that was found last.
func (p *Prober) Present() (cluster, timeline string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.present.cluster, p.present.timeline
}

// ForgetTimeline makes the prober know no timeline of its server.
func (p *Prober) ForgetTimeline() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.present.cluster, p.present.timeline = "", ""
	for _, g := range p.groups {
		g.start(p.present)
	}
}

// SearchFor makes connections suspicious for a time, without the server being found.
func (p *Prober) SearchFor(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.searching = time.Now().Add(-d)
	p.found = p.searching
}

// MomentsOf returns times as a parameter. The caller must not change them afterwards.
func MomentsOf(times []time.Time) Moments {
	out := make(Moments, len(times))
	for i := range times {
		out[i] = (*Moment)(&times[i])
	}
	return out
}

// Replace returns a statement that names placed tables, of which these are known. The table outbox
// numbers its rows, by the sequence numbers. shown says that some of what it does names tables as
// Citus shows them: what the function send does, too.
func (s *PlacedTables) Replace(
	names map[string]string, text string,
) (sql string, shown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, here := range names {
		s.names[name] = placedName{name: here, writes: name == "send"}
	}
	if outbox, ok := s.names["outbox"]; ok {
		outbox.numbers, outbox.column, outbox.next = true, "seq", "nextval('numbers'::regclass)"
		s.names["outbox"] = outbox
	}
	replaced := s.replace(text)
	return replaced.sql, replaced.shown
}

// Note takes notice of an error.
func (s *PlacedTables) Note(err error) { _ = s.note(err) }

// Texts returns how many statements are kept.
func (s *PlacedTables) Texts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.texts)
}
