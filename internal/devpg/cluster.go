//go:build linux || darwin

package devpg

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/asyncflow/asyncflow"
)

// superuser is the role that owns the cluster.
const superuser = "asyncflow"

// clusterVersion returns the major version of the cluster in the data directory, 0 if there is
// none yet. Anything else in its place is a CodeConflict error.
func (l layout) clusterVersion() (int, error) {
	text, err := os.ReadFile(filepath.Join(l.pgdata(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, l.checkEmpty()
	}
	if err != nil {
		return 0, fmt.Errorf("version of the cluster: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, asyncflow.Errorf(asyncflow.CodeConflict,
			"%s holds a cluster of the unknown Postgres version %q", l.pgdata(), text)
	}
	return major, nil
}

func (l layout) checkEmpty() error {
	entries, err := os.ReadDir(l.pgdata())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cluster: %w", err)
	}
	if len(entries) > 0 {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"%s holds something that is no Postgres cluster; choose another data directory",
			l.pgdata())
	}
	return nil
}

// ensureCluster creates the cluster unless it exists, and returns the password of its superuser.
// have is the major version of the existing cluster, 0 for none. A cluster of another version than
// the programs is refused and left unchanged.
func (c child) ensureCluster(pg install, have int, durable bool) (string, error) {
	switch have {
	case 0:
		return c.initCluster(pg, durable)
	case pg.major:
		return c.dir.readPassword()
	default:
		return "", asyncflow.Errorf(asyncflow.CodeConflict,
			"%s holds a cluster of Postgres %d, which Postgres %d (%s) can't run: install "+
				"Postgres %d, name it with --pg-bin, or choose another data directory; nothing "+
				"was changed",
			c.dir.pgdata(), have, pg.major, pg.dir, have)
	}
}

// initCluster runs initdb in a sibling of pgdata and renames that when it is complete, so that
// a crash leaves no incomplete cluster. It first removes the leftovers of such a crash; since
// we hold the lock, no process uses them.
func (c child) initCluster(pg install, durable bool) (string, error) {
	const staging = "pgdata.new-"
	leftovers, _ := filepath.Glob(filepath.Join(globEscape(string(c.dir)), staging+"*"))
	for _, dir := range leftovers {
		_ = os.RemoveAll(dir)
	}
	dir, err := os.MkdirTemp(string(c.dir), staging)
	if err != nil {
		return "", fmt.Errorf("new cluster: %w", err)
	}
	defer os.RemoveAll(dir)
	password, err := c.writePassword()
	if err != nil {
		return "", fmt.Errorf("new cluster: %w", err)
	}
	if err := c.initdb(pg, dir, durable); err != nil {
		return "", err
	}
	if err := os.Rename(dir, c.dir.pgdata()); err != nil {
		return "", fmt.Errorf("new cluster: %w", err)
	}
	return password, syncDir(string(c.dir))
}

func (c child) initdb(pg install, dir string, durable bool) error {
	if err := c.acct.takeOver(dir); err != nil {
		return fmt.Errorf("new cluster: %w", err)
	}
	args := append([]string{"--pgdata", dir, "--pwfile", c.dir.password()}, initdbArgs(durable)...)
	_, err := c.run(pg.program("initdb"), args...)
	return err
}

// initdbArgs are the arguments of initdb that make a difference to the cluster.
func initdbArgs(durable bool) []string {
	args := []string{"--username", superuser, "--auth", "scram-sha-256", "--encoding", "UTF8",
		"--locale", "C", "--data-checksums"}
	if !durable {
		args = append(args, "--no-sync")
	}
	return args
}

// ClusterKey returns a word for what a new cluster of the Config is made by: the major version of
// the programs, and how initdb is called. A stopped cluster made by the same can take its place.
func ClusterKey(ctx context.Context, cfg Config) (string, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return "", err
	}
	dir := layout(cfg.DataDir)
	if err := dir.create(); err != nil {
		return "", err
	}
	acct, err := serverAccount(dir.pgdata())
	if err != nil {
		return "", err
	}
	pg, err := child{ctx: ctx, dir: dir, acct: acct}.ensureInstall(cfg, 0)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Append(nil, runtime.GOARCH, initdbArgs(cfg.Durable)))
	return fmt.Sprintf("%d-%x", pg.major, sum[:6]), nil
}

// writePassword stores a new random password of 128 bits where only we and the server's user
// can read it.
func (c child) writePassword() (string, error) {
	password := rand.Text()
	f, err := os.OpenFile(c.dir.password(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(password + "\n")
	err = errors.Join(err, f.Sync(), f.Close(), c.acct.takeOver(c.dir.password()))
	return password, err
}

func (l layout) readPassword() (string, error) {
	text, err := os.ReadFile(l.password())
	if errors.Is(err, fs.ErrNotExist) {
		return "", asyncflow.Errorf(asyncflow.CodeConflict,
			"%s, the password of the cluster beside it, is missing; restore it or choose another "+
				"data directory", l.password())
	}
	if err != nil {
		return "", fmt.Errorf("password of the cluster: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// syncDir makes a rename in the directory survive a power loss.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// globEscape returns a pattern that matches exactly the path.
func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
