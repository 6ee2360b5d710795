package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// sharedCluster returns the server of this process, started at the first call.
var sharedCluster = sync.OnceValues(func() (*cluster, error) {
	if given := os.Getenv("ASYNCFLOW_TEST_DATABASE_URL"); given != "" {
		return openCluster(given)
	}
	return startCluster()
})

// startCluster starts a server that lives as long as this process.
func startCluster() (*cluster, error) {
	dir, _, err := newDir()
	if err != nil {
		return nil, err
	}
	cfg, err := withChoices(devpg.Config{DataDir: dir})
	if err != nil {
		return nil, err
	}
	server, err := startEmpty(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	return newCluster(server.URL("postgres"), "test")
}

func newCluster(address, prefix string) (*cluster, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("address of the test server: %w", err)
	}
	admin, err := pgxpool.New(context.Background(), address)
	if err != nil {
		return nil, fmt.Errorf("address of the test server: %w", err)
	}
	return &cluster{url: *u, prefix: prefix, admin: admin, templates: map[uintptr]*template{}}, nil
}

// givenPrefix begins the names of all databases that test processes create on a server that
// outlives them; the number of the process follows.
const givenPrefix = "asyncflow_test_"

// openRun is the connection that holds this process's lock for as long as the
// process lives.
var openRun *pgx.Conn

// openCluster uses an existing server. Each process takes a random number for the names of its
// databases and holds the advisory lock of that number, so that later processes can see which
// databases nobody will drop.
func openCluster(address string) (*cluster, error) {
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	var random [4]byte
	_, _ = rand.Read(random[:])
	run := int64(binary.BigEndian.Uint32(random[:]))
	c, err := newCluster(address, givenPrefix+strconv.FormatInt(run, 10))
	if err != nil {
		return nil, err
	}
	c.given = true
	if openRun, err = pgx.Connect(ctx, address); err != nil {
		return nil, fmt.Errorf("ASYNCFLOW_TEST_DATABASE_URL: %w", err)
	}
	if err := c.dropLeftovers(ctx, openRun); err != nil {
		return nil, err
	}
	_, err = openRun.Exec(ctx, "SELECT pg_advisory_lock($1)", run)
	return c, err
}

// dropLeftovers drops the databases of test processes that are gone. The locks by which it
// finds them stay with conn, which does no harm: their numbers aren't used again.
func (c *cluster) dropLeftovers(ctx context.Context, conn *pgx.Conn) error {
	rows, _ := conn.Query(ctx, "SELECT datname FROM pg_database WHERE starts_with(datname, $1)",
		givenPrefix)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("list leftover databases: %w", err)
	}
	for _, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, givenPrefix), "_")
		run, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			continue
		}
		var gone bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)",
			run).Scan(&gone); err != nil {
			return fmt.Errorf("leftover database %s: %w", name, err)
		}
		if !gone {
			continue
		}
		if err := c.dropDatabase(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// dropDatabase drops a database and, on a server that outlives this process, the roles of its
// tenants.
func (c *cluster) dropDatabase(ctx context.Context, name string) error {
	var roles []string
	if c.given {
		conn, err := pgx.Connect(ctx, c.url.String())
		if err != nil {
			return fmt.Errorf("drop database %s: %w", name, err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		if roles, err = rolesOf(ctx, conn, name); err != nil {
			return err
		}
	}
	if err := c.exec(ctx, "DROP DATABASE IF EXISTS %s WITH (FORCE)", name); err != nil {
		return err
	}
	for _, role := range roles { // a role that other databases use goes with the last of them
		if err := c.exec(ctx, "DROP ROLE IF EXISTS %s", role); err != nil && !isUsed(err) {
			return err
		}
	}
	return nil
}

// rolesOf returns the roles of a database's tenants.
func rolesOf(ctx context.Context, conn *pgx.Conn, database string) ([]string, error) {
	rows, _ := conn.Query(ctx,
		`SELECT DISTINCT rolname FROM pg_shdepend d JOIN pg_database b ON b.oid = d.dbid JOIN
			pg_roles r ON r.oid = d.refobjid
		WHERE d.refclassid = 'pg_authid'::regclass AND b.datname = $1 AND rolname ~
			'^asyncflow_[0-9a-f]{8}(_|$)'`, database)
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("roles of database %s: %w", database, err)
	}
	return names, nil
}

// isUsed reports whether a role can't be dropped because it owns something.
func isUsed(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "2BP01"
}
