package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A connection to a worker tries TLS in the ways of the URL to its first host.
func TestReplaceKeepsTheWaysOfTheFirstHost(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string][]bool{
		"disable": {false}, "allow": {false, true}, "prefer": {true, false}, "require": {true},
	} {
		cfg, err := pgx.ParseConfig("postgres://me@one,two/db?sslmode=" + mode)
		require.NoError(t, err)
		postgres.Replace(postgres.Server{Host: "worker", Port: 6000}, cfg)
		var tls []bool
		tls = append(tls, cfg.TLSConfig != nil)
		assert.Equal(t, "worker", cfg.Host)
		assert.EqualValues(t, 6000, cfg.Port)
		for _, f := range cfg.Fallbacks {
			assert.Equal(t, "worker", f.Host)
			assert.EqualValues(t, 6000, f.Port)
			tls = append(tls, f.TLSConfig != nil)
		}
		assert.Equal(t, want, tls, mode)
	}
	cfg, err := pgx.ParseConfig("postgres://me@one/db?sslmode=verify-full")
	require.NoError(t, err)
	postgres.Replace(postgres.Server{Host: "worker", Port: 6000}, cfg)
	assert.Equal(t, "worker", cfg.TLSConfig.ServerName)
}
