package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// OrderHosts puts the hosts of a configuration in order, for the one where the server was found.
func OrderHosts(found string, cfg *pgx.ConnConfig) error {
	return FoundAt(found).order(context.Background(), cfg)
}

// FoundAt returns a group whose server was found at a host.
func FoundAt(host string) *PoolGroup { return &PoolGroup{first: host} }

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

// Suspicious is suspicious, now.
func (f *PoolGroup) Suspicious() bool { return f.suspicious(time.Now()) }

// Choose returns which of the servers of all hosts that take writes is chosen, given their answers
// so far. An empty one is a host without such a server.
func Choose(present string, wait time.Duration, hosts int, servers ...string) string {
	answers := make(chan answer, hosts)
	for _, server := range servers {
		answers <- answer{server: server}
	}
	return choose(present, answers, wait).server
}
