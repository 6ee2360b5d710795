package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/asyncflow/asyncflow/internal/devpg"
)

// citus are the servers of a coordinator and its workers.
type citus struct {
	servers   []*citusServer // the coordinator first
	seq       atomic.Int64
	templates sync.Map // of func() (string, error): the names, by the code of what filled them
}

// citusServer is a server, and the connections for its administration, which end with this process.
type citusServer struct {
	*devpg.Server
	admin *pgxpool.Pool
}

// sharedCitus starts the servers of this process.
var sharedCitus = sync.OnceValues(func() (*citus, error) {
	return startCitus(false, func() (string, error) {
		dir, _, err := newDir()
		return dir, err
	})
})

// Citus starts a coordinator with two workers for a test to stop or kill, and returns them, the
// coordinator first, and the URL of an empty database. Server(t, server.Config()) starts one again.
// They keep what they confirm, and end with the test.
func Citus(t testing.TB) (servers []*devpg.Server, url string) {
	t.Helper()
	needCitus(t)
	c, err := startCitus(true, func() (string, error) { return Dir(t), nil })
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, s := range c.servers {
		s.admin.Close()
		servers = append(servers, s.Server)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), adminTimeout)
			defer cancel()
			if err := s.Stop(ctx); err != nil {
				t.Errorf("pgtest: %v", err)
			}
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), citusTimeout)
	defer cancel()
	if err := c.join(ctx, "postgres"); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return servers, servers[0].URL("postgres")
}

// startCitus starts servers in new directories.
func startCitus(durable bool, dir func() (string, error)) (*citus, error) {
	c := &citus{}
	for range 3 {
		at, err := dir()
		if err != nil {
			return nil, err
		}
		s, err := startCitusServer(at, durable)
		if err != nil {
			return nil, err
		}
		c.servers = append(c.servers, s)
	}
	return c, nil
}

// startCitusServer starts a server that trusts the others on this machine.
func startCitusServer(dir string, durable bool) (*citusServer, error) {
	hba := filepath.Join(dir, "hba.conf")
	if err := os.WriteFile(hba, []byte("host all all 127.0.0.1/32 trust\n"), 0o644); err != nil {
		return nil, err
	}
	server, err := devpg.Start(context.Background(), devpg.Config{DataDir: dir, Durable: durable,
		BinDir: citusPrograms(), Settings: map[string]string{
			"hba_file":                           hba,
			"shared_preload_libraries":           "citus",
			"max_connections":                    "500",
			"max_prepared_transactions":          "500",
			"max_worker_processes":               "100", // one for each database
			"wal_level":                          "logical",
			"citus.node_conninfo":                "sslmode=disable",
			"citus.enable_schema_based_sharding": "on", // asyncflow turns it off
			"citus.enable_statistics_collection": "off",
			"citus.enable_unsafe_triggers":       "on", // tests make some
		}})
	if err != nil {
		return nil, err
	}
	admin, err := pgxpool.New(context.Background(),
		server.URL("postgres")+"&citus.enable_ddl_propagation=off")
	return &citusServer{server, admin}, err
}

// each does something with all servers at once.
func (c *citus) each(do func(s *citusServer) error) error {
	errs := make([]error, len(c.servers))
	var doing sync.WaitGroup
	for i, s := range c.servers {
		doing.Go(func() { errs[i] = do(s) })
	}
	doing.Wait()
	return errors.Join(errs...)
}

// execEach runs a statement on all servers, outside of their databases of tests.
func (c *citus) execEach(ctx context.Context, statement string) error {
	return c.each(func(s *citusServer) error {
		if _, err := s.admin.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
		return nil
	})
}

// join makes the databases of a name one of Citus.
func (c *citus) join(ctx context.Context, name string) error {
	if err := c.each(func(s *citusServer) error {
		return execAll(ctx, s.URL(name), `CREATE EXTENSION citus`)
	}); err != nil {
		return err
	}
	join := []string{"citus_set_coordinator_host", "citus_add_node", "citus_add_node"}
	for i, s := range c.servers {
		join[i] = fmt.Sprintf(`SELECT %s('127.0.0.1', %d)`, join[i], s.Config().Port)
	}
	return execAll(ctx, c.servers[0].URL(name), join...)
}

func (c *citus) newName() string { return fmt.Sprintf("citus_%d", c.seq.Add(1)) }

// drop drops a database on all servers.
func (c *citus) drop(name string) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), citusTimeout)
	defer cancel()
	return c.execEach(ctx, `DROP DATABASE `+name+` WITH (FORCE)`)
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
