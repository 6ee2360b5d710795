package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// citusTimeout bounds the creation of a database of Citus, on three servers.
const citusTimeout = 5 * time.Minute

// OnCitus reports whether databases are to be distributed: ASYNCFLOW_TEST_ENGINE is citus. Then
// Database gives each test a database of a coordinator with two workers, where tenants have no
// roles.
func OnCitus() bool { return os.Getenv(engineVariable) == "citus" }

const engineVariable = "ASYNCFLOW_TEST_ENGINE"

// OnCitusToo runs tests of the calling package once more, with databases of Citus, in a process of
// their own. Where Citus isn't installed, the test is skipped: it is built from its source, see
// docs/scale.md.
func OnCitusToo(t *testing.T, tests ...string) {
	t.Helper()
	if OnCitus() {
		t.Skip("this process runs on Citus")
	}
	if citusPrograms() == "" {
		t.Skip("SKIPPED: nothing says here that asyncflow runs on Citus, which isn't installed " +
			"beside the Postgres of this machine")
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v",
		"-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(os.Environ(), engineVariable+"=citus")
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("on Citus: %v\n%s", err, said)
	}
	for _, test := range tests {
		if !bytes.Contains(said, []byte("--- PASS: "+test+" ")) {
			t.Errorf("%s didn't pass on Citus\n%s", test, said)
		}
	}
}

// citusPrograms returns a directory of Postgres' programs beside which Citus is installed; "":
// there is none.
func citusPrograms() string {
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/lib/citus.so", "/usr/pgsql-*/lib/citus.so",
	} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return filepath.Join(filepath.Dir(filepath.Dir(found[len(found)-1])), "bin")
		}
	}
	return ""
}

// citus are the servers of a coordinator and its workers.
type citus struct {
	servers   []*devpg.Server // the coordinator first
	seq       atomic.Int64
	templates sync.Map // of func() (string, error): the names, by the code of what filled them
}

// citusServers starts the servers, which live as long as this process.
var citusServers = sync.OnceValues(func() (*citus, error) {
	c := &citus{}
	for range 3 {
		s, err := startCitusServer()
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
	}
	return c, nil
})

// startCitusServer starts a server that trusts the others on this machine.
func startCitusServer() (*devpg.Server, error) {
	dir, _, err := newDir()
	if err != nil {
		return nil, err
	}
	hba := filepath.Join(dir, "hba.conf")
	if err := os.WriteFile(hba, []byte("host all all 127.0.0.1/32 trust\n"), 0o644); err != nil {
		return nil, err
	}
	return devpg.Start(context.Background(), devpg.Config{DataDir: dir, BinDir: citusPrograms(),
		Settings: map[string]string{
			"hba_file":                           hba,
			"shared_preload_libraries":           "citus",
			"max_prepared_transactions":          "200",
			"wal_level":                          "logical",
			"citus.node_conninfo":                "sslmode=disable",
			"citus.enable_schema_based_sharding": "on", // asyncflow turns it off
			"citus.max_cached_conns_per_worker":  "8",
			"citus.enable_statistics_collection": "off",
		}})
}

// openCitus makes a database on all servers. ASYNCFLOW_TEST_CITUS_URL leads to an empty database of
// a running coordinator instead, for one test at a time; it is left as it is.
func openCitus() (address string, drop func() error, err error) {
	if given := os.Getenv("ASYNCFLOW_TEST_CITUS_URL"); given != "" {
		return given, func() error { return nil }, nil
	}
	c, err := citusServers()
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), citusTimeout)
	defer cancel()
	name := c.newName()
	for _, s := range c.servers {
		if err := execAll(ctx, s.URL("postgres"), `SET citus.enable_ddl_propagation = off`,
			`CREATE DATABASE `+name); err != nil {
			return "", nil, err
		}
		if err := execAll(ctx, s.URL(name), `CREATE EXTENSION citus`); err != nil {
			return "", nil, err
		}
	}
	join := []string{"citus_set_coordinator_host", "citus_add_node", "citus_add_node"}
	for i, s := range c.servers {
		join[i] = fmt.Sprintf(`SELECT %s('127.0.0.1', %d)`, join[i], s.Config().Port)
	}
	if err := execAll(ctx, c.servers[0].URL(name), join...); err != nil {
		return "", nil, err
	}
	return c.servers[0].URL(name), func() error { return c.drop(name) }, nil
}

func (c *citus) newName() string { return fmt.Sprintf("citus_%d", c.seq.Add(1)) }

// drop drops a database on all servers.
func (c *citus) drop(name string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), citusTimeout)
	defer cancel()
	for _, s := range c.servers {
		err = errors.Join(err, execAll(ctx, s.URL("postgres"),
			`SET citus.enable_ddl_propagation = off`, `DROP DATABASE `+name+` WITH (FORCE)`))
	}
	return err
}

// KillCitusWorker kills the worker at a URL of WorkersOf, and returns what starts it again at the
// same address. No other test of this process may use Citus meanwhile.
func KillCitusWorker(t *testing.T, worker string) (restart func()) {
	t.Helper()
	c, err := citusServers()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	u, err := url.Parse(worker)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for i, s := range c.servers {
		if u.Port() != fmt.Sprint(s.Config().Port) {
			continue
		}
		if err := s.Kill(); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		return func() {
			t.Helper()
			again, err := devpg.Start(context.Background(), s.Config())
			if err != nil {
				t.Fatalf("pgtest: %v", err)
			}
			c.servers[i] = again
		}
	}
	t.Fatalf("pgtest: there is no worker %s", u.Host)
	return nil
}

// execAll runs statements one by one.
func execAll(ctx context.Context, address string, statements ...string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// WorkersOf returns the URLs of the workers of a database of Citus.
func WorkersOf(ctx context.Context, address string) (all []string, err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, _ := conn.Query(ctx, `SELECT nodename || ':' || nodeport FROM pg_dist_node
		WHERE shouldhaveshards ORDER BY 1`)
	hosts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	for _, host := range hosts {
		worker := *u
		worker.Host = host
		all = append(all, worker.String())
	}
	return all, err
}

// openOnCitus is Open with a database of Citus: on each server a copy of a template.
func openOnCitus(
	prepare func(ctx context.Context, url string) error,
) (address string, drop func() error, err error) {
	if prepare == nil {
		return openCitus()
	}
	c, err := citusServers()
	if err != nil {
		return "", nil, err
	}
	made, _ := c.templates.LoadOrStore(reflect.ValueOf(prepare).Pointer(),
		sync.OnceValues(func() (string, error) { return c.makeTemplate(prepare) }))
	template, err := made.(func() (string, error))()
	if err != nil {
		return "", nil, fmt.Errorf("template: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), citusTimeout)
	defer cancel()
	name := c.newName()
	for _, s := range c.servers {
		err := execAll(ctx, s.URL("postgres"), `SET citus.enable_ddl_propagation = off`,
			`CREATE DATABASE `+name+` TEMPLATE `+template+` STRATEGY file_copy`)
		if err != nil {
			return "", nil, err
		}
	}
	return c.servers[0].URL(name), func() error { return c.drop(name) }, nil
}

// makeTemplate makes a database that nobody connects to any more, not even Citus' own processes.
func (c *citus) makeTemplate(prepare func(context.Context, string) error) (string, error) {
	address, _, err := openCitus()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), citusTimeout)
	defer cancel()
	if err := prepare(ctx, address); err != nil {
		return "", fmt.Errorf("prepare: %w", err)
	}
	cfg, err := pgx.ParseConfig(address)
	if err != nil {
		return "", err
	}
	for _, s := range c.servers {
		if err := execAll(ctx, s.URL("postgres"),
			`ALTER DATABASE `+cfg.Database+` ALLOW_CONNECTIONS false`,
			`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
				WHERE datname = '`+cfg.Database+`'`); err != nil {
			return "", err
		}
	}
	return cfg.Database, nil
}
