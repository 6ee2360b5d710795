package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client"
	"github.com/asyncflow/asyncflow/internal/devpg"
	"github.com/asyncflow/asyncflow/internal/longform"
	"github.com/asyncflow/asyncflow/internal/pgtest"
)

// backupSite runs the commands of docs/backup.md, with directories of its own for /backups.
type backupSite struct {
	*testing.T
	dir    string // for /backups, and with asyncflow in it
	path   string // for commands
	blocks map[string]string
}

func newBackupSite(t *testing.T) *backupSite {
	t.Helper()
	s := &backupSite{T: t, dir: pgtest.Dir(t), blocks: docsBlocks(t, "backup.md")}
	s.path = s.dir
	for _, program := range []string{"pg_basebackup", "pg_dump", "pg_restore"} {
		s.path += ":" + filepath.Dir(postgresProgram(t, program))
	}
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "asyncflow"),
		fmt.Appendf(nil, "#!/bin/sh\n%s=1 exec %s \"$@\"\n", beAsyncflow, os.Args[0]), 0o700))
	for _, dir := range []string{"wal", "base"} { // the server runs as a user of its own
		require.NoError(t, os.Mkdir(filepath.Join(s.dir, dir), 0o700))
		require.NoError(t, os.Chmod(filepath.Join(s.dir, dir), 0o777))
	}
	return s
}

// here puts the directories of the test in the place of the page's.
func (s *backupSite) here(text string) string { return strings.ReplaceAll(text, "/backups", s.dir) }

// settings are the ones of the page.
func (s *backupSite) settings() map[string]string {
	text, err := os.ReadFile("../../docs/backup.md")
	require.NoError(s, err)
	settings := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^(archive_\w+) = '?(.*?)'?$`).FindAllStringSubmatch(
		string(text), -1) {
		settings[m[1]] = s.here(m[2])
	}
	require.Len(s, settings, 3)
	return settings
}

// run runs the commands of the page that begin with a name.
func (s *backupSite) run(name string, env ...string) {
	s.Helper()
	require.NotEmpty(s, s.blocks["# "+name])
	sh := exec.Command("sh", "-c", s.here(s.blocks["# "+name]))
	sh.Dir = s.dir
	sh.Env = append(append(os.Environ(), "PATH="+s.path+":"+os.Getenv("PATH")), env...)
	said, err := sh.CombinedOutput()
	require.NoError(s, err, "%s: %s", name, said)
}

// backedUp is an installation that is backed up and lost.
type backedUp struct {
	*backupSite
	w     *worker
	ended []string // before the backup, or before the moment that is restored
	due   []string // and pending at that moment, as the type was paused
	later []string // and delayed
	lost  []string // submitted after the moment
	key   string   // an idempotency key of a delayed task
}

// prepare makes tasks that end before the moment.
func (b *backedUp) prepare(c *client.Client) {
	b.Helper()
	b.w = startWorker(b.T, func(http.ResponseWriter, *http.Request, delivery) {})
	b.w.pipe(b.T, c, oneStage())
	b.key = "order-17"
	b.end(c)
	task := client.NewTask{Type: "pipe", Context: client.JSON(`1`),
		Delay: client.NewDuration(time.Hour), Key: b.key}
	submitted, err := c.Submit(b.Context(), task)
	require.NoError(b, err)
	b.later = append(b.later, submitted.ID)
}

// end makes more tasks that end.
func (b *backedUp) end(c *client.Client) {
	b.Helper()
	ids := submitMany(b.T, c, 10)
	awaitAll(b.T, c, ids)
	b.ended = append(b.ended, ids...)
}

// pause makes tasks that are due until the type goes on.
func (b *backedUp) pause(c *client.Client) {
	b.Helper()
	_, err := c.PauseTaskType(b.Context(), "pipe", "a backup")
	require.NoError(b, err)
	b.due = submitMany(b.T, c, 10)
}

// lose makes everything happen that the restore doesn't know.
func (b *backedUp) lose(c *client.Client) {
	b.Helper()
	_, err := c.ResumeTaskType(b.Context(), "pipe", 0)
	require.NoError(b, err)
	awaitAll(b.T, c, b.due)
	b.lost = submitMany(b.T, c, 10)
	awaitAll(b.T, c, b.lost)
}

// check checks an installation that was restored, and that it works.
func (b *backedUp) check(c *client.Client) {
	b.Helper()
	status := func(ids []string, want client.Status) {
		b.Helper()
		for _, id := range ids {
			task, err := c.Get(b.Context(), id)
			require.NoError(b, err)
			assert.Equal(b, want, task.Status, id)
		}
	}
	status(b.ended, client.StatusSucceeded)
	status(b.due, client.StatusPending)
	status(b.later, client.StatusWaiting)
	for _, id := range b.lost {
		_, err := c.Get(b.Context(), id)
		assert.Equal(b, asyncflow.CodeNotFound, asyncflow.CodeOf(err), id)
	}
	before := len(b.w.deliveries())
	_, err := c.ResumeTaskType(b.Context(), "pipe", 0)
	require.NoError(b, err)
	awaitAll(b.T, c, b.due)
	assert.GreaterOrEqual(b, len(b.w.deliveries()), before+len(b.due), "they are delivered again")
	again, err := c.Submit(b.Context(), client.NewTask{Type: "pipe", Context: client.JSON(`1`),
		Delay: client.NewDuration(time.Hour), Key: b.key})
	require.NoError(b, err)
	assert.Equal(b, b.later[0], again.ID)
	ids := submitMany(b.T, c, 10)
	awaitAll(b.T, c, ids)
	for _, id := range ids {
		assert.NotContains(b, append(append(b.lost, b.ended...), b.due...), id)
	}
}

// The commands of docs/backup.md restore an installation to a moment from a base backup and the
// archive: nodes go on with what there was, also one that was there all the time. It sleeps until
// the checks are over, as it may deliver by the configuration that it knows for a second.
func TestRestoreToAMoment(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	b := &backedUp{backupSite: newBackupSite(t)}
	primary := pgtest.Server(t, devpg.Config{Settings: b.settings()})
	require.NoError(t, primary.EnsureDatabase(t.Context(), "asyncflow"))
	url := primary.URL("asyncflow")
	require.NoError(t, prepareDatabase(t.Context(), url))
	p := startNode(t, url)
	b.prepare(p.client())
	b.run("base-backup", "DATABASE_URL="+url)
	b.end(p.client())
	b.pause(p.client())
	db, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	var moment, segment string
	require.NoError(t, db.QueryRow(t.Context(), `SELECT clock_timestamp()::text`).Scan(&moment))
	b.lose(p.client())
	require.NoError(t, db.QueryRow(t.Context(),
		`SELECT pg_walfile_name(pg_switch_wal())`).Scan(&segment))
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(b.dir, "wal", segment))
		return err == nil
	}, patience, 20*time.Millisecond, "the log is archived")
	_ = db.Close(t.Context())
	p.halt(syscall.SIGSTOP)
	require.NoError(t, primary.Kill())

	bases, err := filepath.Glob(filepath.Join(b.dir, "base", "*"))
	require.NoError(t, err)
	require.Len(t, bases, 1)
	pgtest.RestoreBy(t, primary, func(pgdata string) {
		b.run("restore-to-a-moment", "BASE="+bases[0], "MOMENT="+moment, "PGDATA="+pgdata)
	})
	awaitPrimary(t, url)
	b.check(startNode(t, url).client())
	p.signal(syscall.SIGCONT)
	require.Eventually(t, func() bool { return p.status("", "/readyz") == http.StatusOK }, patience,
		20*time.Millisecond, "it has connections again")
	awaitAll(t, p.client(), submitMany(t, p.client(), 10))
}

// awaitPrimary waits until a server takes writes.
func awaitPrimary(t *testing.T, url string) {
	t.Helper()
	require.Eventually(t, func() bool {
		db, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return false
		}
		defer db.Close(context.WithoutCancel(t.Context()))
		recovers := true
		err = db.QueryRow(t.Context(), `SELECT pg_is_in_recovery()`).Scan(&recovers)
		return err == nil && !recovers
	}, patience, 20*time.Millisecond, "the recovery ends")
}

// The commands of docs/backup.md restore a dump into another cluster, where the user goes by
// another name, isn't a superuser, and no role is there.
func TestRestoreADump(t *testing.T) {
	longform.Costly(t)
	t.Parallel()
	b := &backedUp{backupSite: newBackupSite(t)}
	url := database(t)
	p := startNode(t, url)
	b.prepare(p.client())
	b.pause(p.client())
	b.run("dump", "DATABASE_URL="+url)
	b.lose(p.client())
	p.kill()

	fresh := pgtest.Server(t, devpg.Config{Durable: true}) // or the doctor complains
	db, err := pgx.Connect(t.Context(), fresh.URL("postgres"))
	require.NoError(t, err)
	defer db.Close(context.Background())
	for _, sql := range []string{`CREATE ROLE dispatcher LOGIN CREATEROLE PASSWORD 'secret'`,
		`CREATE DATABASE asyncflow OWNER dispatcher`} {
		_, err := db.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	restored := asUser(t, fresh.URL("asyncflow"), "dispatcher", "secret")
	b.run("restore-a-dump", append(nodeEnv(restored), "ASYNCFLOW_URL=")...)
	var roles int
	require.NoError(t, db.QueryRow(t.Context(), `SELECT count(*) FROM pg_roles
		WHERE rolname LIKE 'asyncflow\_%'`).Scan(&roles))
	assert.Equal(t, 2, roles, "that of the tenant, and the base role")
	b.check(startNode(t, restored).client())
}

// asUser returns a URL with another user.
func asUser(t *testing.T, rawURL, user, password string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	require.NoError(t, err)
	u.User = url.UserPassword(user, password)
	return u.String()
}
