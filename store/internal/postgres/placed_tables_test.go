package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Names of tables are replaced wherever they stand, and nothing else is.
func TestPlacedTablesAreNamed(t *testing.T) {
	t.Parallel()
	names := map[string]string{"task_1": `tenant_acme.task_1_102`, "locks": `tenant_acme.locks_103`,
		`odd"`: `tenant_acme."odd""_104"`, "history": "", "send": "",
		"outbox": `tenant_acme.outbox_105`}
	for text, want := range map[string]string{
		`SELECT 1 FROM "tenant_acme"."task_1" t`:      `SELECT 1 FROM tenant_acme.task_1_102 t`,
		`SELECT 1 FROM "tenant_acme".locks`:           `SELECT 1 FROM tenant_acme.locks_103`,
		`SELECT "tenant_acme"."history"(tableoid)`:    `SELECT "tenant_acme"."history"(tableoid)`,
		`DELETE FROM "tenant_acme"."odd"""`:           `DELETE FROM tenant_acme."odd""_104"`,
		`SELECT '"tenant_acme"."task_1"'::regclass`:   `SELECT 'tenant_acme.task_1_102'::regclass`,
		`SELECT 1 FROM "tenant_acme"."task_11"`:       `SELECT 1 FROM "tenant_acme"."task_11"`,
		`SELECT 1 FROM "tenant_acme2"."task_1"`:       `SELECT 1 FROM "tenant_acme2"."task_1"`,
		`SELECT 1 FROM "my_tenant_acme"."task_1"`:     `SELECT 1 FROM "my_tenant_acme"."task_1"`,
		`SELECT 1 FROM tenant_acme.task_1, locks l`:   `SELECT 1 FROM tenant_acme.task_1, locks l`,
		`INSERT INTO "tenant_acme"."locks"(a) SELECT`: `INSERT INTO tenant_acme.locks_103(a) SELECT`,
		`DELETE FROM "tenant_acme"."outbox"`:          `DELETE FROM tenant_acme.outbox_105`,
		// here rows get no numbers by themselves
		"INSERT INTO \"tenant_acme\".outbox (a, b)\nSELECT * FROM \"tenant_acme\".task_1": "" +
			"INSERT INTO tenant_acme.outbox_105 (seq, a, b) SELECT nextval('numbers'::regclass), " +
			"* FROM tenant_acme.task_1_102",
		`WITH d AS (INSERT INTO "tenant_acme"."outbox" (a) SELECT 1 RETURNING seq) SELECT 1`: "" +
			`WITH d AS (INSERT INTO tenant_acme.outbox_105 (seq, a) SELECT ` +
			`nextval('numbers'::regclass), 1 RETURNING seq) SELECT 1`,
	} {
		placed := postgres.NewPlacedTables("tenant_acme", 102)
		sql, shown := placed.Replace(names, text)
		assert.Equal(t, want, sql)
		assert.False(t, shown, text)
	}
}

// What can't get numbers, or names tables in a function, stays with the tables that Citus shows.
func TestPlacedTablesAreShown(t *testing.T) {
	t.Parallel()
	names := map[string]string{"task_1": `tenant_acme.task_1_102`, "send": "",
		"outbox": `tenant_acme.outbox_105`}
	for _, text := range []string{
		`INSERT INTO "tenant_acme".outbox (a) VALUES ($1), ($2)`,
		`INSERT INTO "tenant_acme".outbox (a) SELECT DISTINCT a FROM "tenant_acme".task_1`,
		`INSERT INTO "tenant_acme".outbox SELECT a FROM "tenant_acme".task_1`,
		`SELECT "tenant_acme".send($1)`,
	} {
		placed := postgres.NewPlacedTables("tenant_acme", 102)
		for range 2 { // the second time it is kept
			sql, shown := placed.Replace(names, text)
			assert.Equal(t, text, sql)
			assert.True(t, shown, text)
		}
	}
}

// Statements are kept up to a number, and only once all of their names are known.
func TestPlacedTablesKeepFewTexts(t *testing.T) {
	t.Parallel()
	placed := postgres.NewPlacedTables("tenant_acme", 102)
	names := map[string]string{"task_1": `tenant_acme.task_1_102`}
	placed.Replace(names, `SELECT 1 FROM "tenant_acme"."task_2"`)
	assert.Zero(t, placed.Texts())
	for n := range 10_000 {
		placed.Replace(names, fmt.Sprintf(`SELECT %d FROM "tenant_acme"."task_1"`, n))
	}
	assert.LessOrEqual(t, placed.Texts(), 4096)
	assert.Positive(t, placed.Texts())
}

// Only errors that say that a table is elsewhere, or may be, lead away from it.
func TestPlacedTablesMove(t *testing.T) {
	t.Parallel()
	for code, moved := range map[string]bool{
		pgerrcode.UndefinedTable:   true,
		pgerrcode.InternalError:    true, // Citus' own have no other code
		pgerrcode.LockNotAvailable: false,
		pgerrcode.UniqueViolation:  false,
		// another user owns the tables now
		pgerrcode.InsufficientPrivilege: true,
	} {
		placed := postgres.NewPlacedTables("tenant_acme", 102)
		placed.Note(errors.New("gone"))
		assert.False(t, placed.Moved())
		placed.Note(&pgconn.PgError{Code: code})
		assert.Equal(t, moved, placed.Moved(), code)
		assert.Equal(t, !moved, placed.Are(102))
		assert.False(t, placed.Are(103))
	}
}
