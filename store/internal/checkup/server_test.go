package checkup

import (
	"context"
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
	c := &checkup{url: url, conn: conn, old: oldTransaction}
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

// A check's findings are bounded.
func TestFindingsAreBounded(t *testing.T) {
	f := &findings{check: "many", page: "p.md"}
	for range mostFindings + 7 {
		f.add(LevelWarning, "do", "text")
	}
	all := f.end("well")
	require.Len(t, all, mostFindings+1)
	assert.Equal(t, Finding{Check: "many", Level: LevelNote, Page: "p.md",
		Text: "and 7 more like these"}, all[mostFindings])
}
