package postgres

import (
	"context"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// OrderHosts puts the hosts of a configuration in order, for the one where the server was found.
func OrderHosts(found string, cfg *pgx.ConnConfig) error {
	return (&PoolGroup{first: found}).order(context.Background(), cfg)
}

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
