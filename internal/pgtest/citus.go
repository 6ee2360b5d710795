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
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// citusTimeout bounds the creation of a database of Citus, on three servers.
const citusTimeout = 5 * time.Minute

// OnCitus reports whether databases are to be distributed: ASYNCFLOW_TEST_ENGINE is citus. Then
// Database gives each test a database of a coordinator with two workers.
func OnCitus() bool { return os.Getenv(engineVariable) == "citus" }

// NoRoles reports whether tests do without database roles: on Citus, unless ASYNCFLOW_TEST_ROLES is
// on.
func NoRoles() bool { return OnCitus() && os.Getenv(rolesVariable) != "on" }

const (
	engineVariable = "ASYNCFLOW_TEST_ENGINE"
	rolesVariable  = "ASYNCFLOW_TEST_ROLES"
	askedVariable  = "ASYNCFLOW_TEST_CITUS"
)

// NotOnCitus skips a test that can't run on Citus, and says why.
func NotOnCitus(t testing.TB, why string) {
	t.Helper()
	if OnCitus() {
		t.Skip("not on Citus: " + why)
	}
}

// needCitus skips a test that starts servers of Citus, three and more of them, unless it is asked
// for: go test says the same on each machine, whatever is installed there.
func needCitus(t testing.TB) {
	t.Helper()
	if !OnCitus() && os.Getenv(askedVariable) != "1" {
		t.Skip("SKIPPED: nothing says here that asyncflow runs on Citus: " + askedVariable +
			"=1, or make citus-test")
	}
	if citusPrograms() == "" {
		t.Fatal("pgtest: Citus isn't installed beside the Postgres of this machine: it is built " +
			"from its source, see docs/scale.md")
	}
}

const ownServer = "the test stops or configures a plain Postgres of its own"

// citusAtOnce is how many parallel tests of a package run at once: each has its connections at
// three servers.
const citusAtOnce = 4

// OnCitusToo runs tests of the calling package once more, with databases of Citus, in a process of
// their own. Unless ASYNCFLOW_TEST_CITUS is 1 the test is skipped.
func OnCitusToo(t *testing.T, tests ...string) {
	t.Helper()
	onCitusToo(t, "off", tests)
}

// OnCitusWithRoles is OnCitusToo with database roles.
func OnCitusWithRoles(t *testing.T, tests ...string) {
	t.Helper()
	onCitusToo(t, "on", tests)
}

func onCitusToo(t *testing.T, roles string, tests []string) {
	t.Helper()
	if OnCitus() {
		t.Skip("this process runs on Citus")
	}
	needCitus(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v",
		"-test.run", "^("+strings.Join(tests, "|")+")$")
	cmd.Env = append(os.Environ(), engineVariable+"=citus", rolesVariable+"="+roles)
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

// openCitus makes a database on all servers. ASYNCFLOW_TEST_CITUS_URL leads to an empty database of
// a running coordinator instead, for one test at a time; it is left as it is.
func openCitus() (address string, drop func() error, err error) {
	if given := os.Getenv("ASYNCFLOW_TEST_CITUS_URL"); given != "" {
		return given, func() error { return nil }, nil
	}
	c, err := sharedCitus()
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), citusTimeout)
	defer cancel()
	name := c.newName()
	if err := c.execEach(ctx, `CREATE DATABASE `+name); err != nil {
		return "", nil, err
	}
	if err := c.join(ctx, name); err != nil {
		return "", nil, err
	}
	return c.servers[0].URL(name), func() error { return c.drop(name) }, nil
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
	c, err := sharedCitus()
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
	if err := c.execEach(ctx,
		`CREATE DATABASE `+name+` TEMPLATE `+template+` STRATEGY file_copy`); err != nil {
		return "", nil, err
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
	return cfg.Database, errors.Join(
		c.execEach(ctx, `ALTER DATABASE `+cfg.Database+` ALLOW_CONNECTIONS false`),
		c.execEach(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE datname = '`+cfg.Database+`'`))
}

// Activity names the view with the sessions of the server, or of all servers of Citus. Process ids
// mean something only without Citus.
func Activity() string {
	if OnCitus() {
		return "citus_stat_activity"
	}
	return "pg_stat_activity"
}
