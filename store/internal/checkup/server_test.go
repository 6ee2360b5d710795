package checkup

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow/internal/pgtest"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

func opened(t *testing.T) *checkup {
	t.Helper()
	t.Parallel()
	url := pgtest.Database(t, nil)
	conn, err := postgres.Connect(t.Context(), url)
	require.NoError(t, err)
	c := &checkup{url: url, conn: conn, old: oldTransaction, dead: manyDead,
		deadHot: manyDeadHot}
	t.Cleanup(func() { _ = c.conn.Close(context.Background()) })
	return c
}

// found runs a check, and returns what it finds.
func (c *checkup) found(
	t *testing.T, run func(*checkup, context.Context, *findings) error,
) []Finding {
	t.Helper()
	f := &findings{}
	require.NoError(t, run(c, t.Context(), f))
	return f.all
}

// A transaction that stays open is named, with what ends it.
func TestOldTransactions(t *testing.T) {
	c := opened(t)
	assert.Empty(t, c.found(t, (*checkup).transactions))
	conn, err := pgx.Connect(t.Context(), c.url+"&application_name=forgotten")
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), `BEGIN; SELECT 1`)
	require.NoError(t, err)
	c.old = -time.Hour // each transaction is older
	all := c.found(t, (*checkup).transactions)
	var texts string
	for _, f := range all {
		assert.Equal(t, LevelWarning, f.Level)
		assert.Contains(t, f.Do, "pg_terminate_backend")
		texts += f.Text
	}
	assert.Contains(t, texts, "forgotten, idle in transaction) is ")
}

// A check that takes too long, or loses its connection, is a finding. The next one goes on.
func TestAFailedCheckIsAFinding(t *testing.T) {
	c := opened(t)
	sleep := func(c *checkup, ctx context.Context, _ *findings) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, err := c.conn.Exec(ctx, `SELECT pg_sleep(600)`)
		return err
	}
	all := c.one(t.Context(), check{"slow", "p.md#p", "well", sleep})
	require.Len(t, all, 1)
	assert.Equal(t, LevelWarning, all[0].Level)
	assert.Contains(t, all[0].Text, "could not be checked: ")
	assert.True(t, c.conn.IsClosed())
	next := check{"clock", "p.md#p", "well", (*checkup).clock}
	assert.Equal(t, []Finding{{Check: "clock", Level: LevelOK, Text: "well"}},
		c.one(t.Context(), next))
}

// A server, a database or a role for which commits aren't on disk is named.
func TestCommitsThatAreNotOnDisk(t *testing.T) {
	c := opened(t)
	const unsynced = "synchronous_commit is off for "
	texts := func() (all []string) {
		for _, f := range c.found(t, (*checkup).unsynced) {
			assert.Equal(t, LevelWarning, f.Level)
			assert.Contains(t, f.Do, "set it to on")
			all = append(all, f.Text)
		}
		return all
	}
	before := len(texts()) // servers for tests may be fast
	database := postgres.Quote(c.conn.Config().Database)
	role := postgres.Quote(c.conn.Config().Database + "-app")
	exec := func(sql string) {
		_, err := c.conn.Exec(context.Background(), sql)
		require.NoError(t, err)
	}
	exec(`CREATE ROLE ` + role)
	t.Cleanup(func() { exec(`DROP ROLE ` + role) })
	exec(`ALTER DATABASE ` + database + ` SET synchronous_commit = off`)
	exec(`ALTER ROLE ` + role + ` SET synchronous_commit = off`)
	all := strings.Join(texts(), "\n")
	require.Len(t, texts(), before+2)
	assert.Contains(t, all, unsynced+"the database "+c.conn.Config().Database+":")
	assert.Contains(t, all, unsynced+"the role "+role+":")
	exec(`ALTER DATABASE ` + database + ` SET synchronous_commit = on`)
	exec(`ALTER ROLE ` + role + ` IN DATABASE ` + database + ` SET synchronous_commit = off`)
	exec(`ALTER ROLE ` + role + ` RESET synchronous_commit`)
	assert.Contains(t, strings.Join(texts(), "\n"),
		unsynced+"the role "+role+" in the database "+c.conn.Config().Database+":")
}

// A table from which tasks are leased is reported with fewer dead rows than another one.
func TestDeadRows(t *testing.T) {
	c := opened(t)
	c.dead, c.deadHot = 30, 10
	_, err := c.conn.Exec(t.Context(), `CREATE SCHEMA tenant_acme`)
	require.NoError(t, err)
	for _, table := range []string{"ready_mail_2", "lease", "lease_of_a_house", "task_1"} {
		_, err := c.conn.Exec(t.Context(), `CREATE TABLE tenant_acme.`+table+
			` WITH (autovacuum_enabled = off) AS SELECT generate_series(1, 20) AS n;
			DELETE FROM tenant_acme.`+table)
		require.NoError(t, err)
	}
	_, err = c.conn.Exec(t.Context(), `SELECT pg_stat_force_next_flush()`)
	require.NoError(t, err)
	var tables []string
	for _, f := range c.found(t, (*checkup).vacuum) {
		table, _, _ := strings.Cut(f.Text, " has ")
		tables = append(tables, table)
		assert.Contains(t, f.Do, "VACUUM "+table)
	}
	assert.ElementsMatch(t, []string{"tenant_acme.ready_mail_2", "tenant_acme.lease"}, tables)
}

// A check's findings are bounded.
func TestFindingsAreBounded(t *testing.T) {
	f := &findings{check: "many", page: "p.md"}
	for range mostFindings + 7 {
		f.add(LevelWarning, "do", "text")
	}
	all := f.end("well")
	require.Len(t, all, mostFindings+1)
	assert.Equal(t, Finding{Check: "many", Level: LevelNote, Page: "p.md",
		Text: "and 7 more like these",
		Do:   "run the doctor again once these are done"}, all[mostFindings])
}
