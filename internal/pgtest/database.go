package pgtest

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// adminTimeout bounds the creation, filling or dropping of a database.
const adminTimeout = time.Minute

// Database returns the URL of a fresh database. It is a copy of a template that prepare filled,
// once per process; a nil prepare gives empty databases. The template belongs to the function
// in the source, so a closure must do the same every time. prepare must close its connections. The
// database is dropped at the end of the test, even if connections to it are still open.
func Database(t testing.TB, prepare func(ctx context.Context, url string) error) string {
	t.Helper()
	url, drop, err := Open(prepare)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return url
}

// Open is Database for code that is no test, such as an example; drop drops the database.
func Open(
	prepare func(ctx context.Context, url string) error,
) (url string, drop func() error, err error) {
	if OnCitus() {
		return openOnCitus(prepare)
	}
	c, err := sharedCluster()
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
	defer cancel()
	template, err := c.template(ctx, prepare)
	if err != nil {
		return "", nil, fmt.Errorf("template: %w", err)
	}
	name := c.newName()
	// The default strategy, WAL_LOG, takes twice the time (15 to 18).
	const create = "CREATE DATABASE %s TEMPLATE %s STRATEGY file_copy"
	if err := c.exec(ctx, create, name, template); err != nil {
		return "", nil, err
	}
	return c.urlOf(name), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
		defer cancel()
		return c.dropDatabase(ctx, name)
	}, nil
}

// cluster is the server of this process's databases.
type cluster struct {
	url    url.URL // of an existing database, for administration
	prefix string  // of the names of this process's databases
	given  bool    // it outlives this process
	seq    atomic.Int64

	// admin are connections for administration. They stay open, as a new one costs more than most
	// statements, and end with this process.
	admin *pgxpool.Pool

	mu        sync.Mutex
	templates map[uintptr]*template // by the code of the function that fills them
}

type template struct {
	once sync.Once
	name string
	err  error
}

func (c *cluster) newName() string { return fmt.Sprintf("%s_%d", c.prefix, c.seq.Add(1)) }

func (c *cluster) urlOf(database string) string {
	u := c.url
	u.Path = "/" + database
	return u.String()
}

// template returns the name of the database that prepare filled. The first call fills it; if
// that fails, all calls return its error.
func (c *cluster) template(
	ctx context.Context, prepare func(context.Context, string) error,
) (string, error) {
	c.mu.Lock()
	key := reflect.ValueOf(prepare).Pointer()
	tmpl, ok := c.templates[key]
	if !ok {
		tmpl = &template{name: c.newName()}
		c.templates[key] = tmpl
	}
	c.mu.Unlock()
	tmpl.once.Do(func() { tmpl.err = c.fill(ctx, tmpl.name, prepare) })
	return tmpl.name, tmpl.err
}

func (c *cluster) fill(
	ctx context.Context, name string, prepare func(context.Context, string) error,
) error {
	if err := c.exec(ctx, "CREATE DATABASE %s TEMPLATE template0", name); err != nil {
		return err
	}
	if prepare != nil {
		if err := prepare(ctx, c.urlOf(name)); err != nil {
			return err
		}
	}
	return describeCatalog(ctx, c.urlOf(name))
}

// describeCatalog makes Postgres keep the description of its own tables in a file of the database.
// A new connection does that where there is none, unless something changes meanwhile: beside other
// tests, the connections of prepare sometimes don't. Copies of a template have the file, too.
// Otherwise the first connections to each of them would make it.
func describeCatalog(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// exec runs a statement with names of databases.
func (c *cluster) exec(ctx context.Context, statement string, names ...any) error {
	for i, name := range names {
		names[i] = pgx.Identifier{name.(string)}.Sanitize()
	}
	statement = fmt.Sprintf(statement, names...)
	if _, err := c.admin.Exec(ctx, statement, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}
