package settings

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/internal/sleep"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A table without a primary key has no replica identity, by which the new worker finds the rows
// that were changed or deleted. For a move, the ready tables get a unique index for that: reading
// the whole table for each task that is leased would never catch up. The other tables without a key
// are small, and their rows are found by all of their columns.
//
// A comment of the table says so, and which identity it had before. So a later move knows what one
// has left that crashed.

const (
	// moveIndex ends the names of the indexes that are made for a move.
	moveIndex = "_move"
	// moveComment begins the comments; the identity from before follows, as Postgres writes it.
	moveComment = "asyncflow has changed the replica identity for a move; it was: "
)

// identity is how a table is told by logical replication.
type identity struct {
	table   string
	missing bool   // rows can't be told
	kind    string // as Postgres writes it: d, n, f or i
	indexed bool   // there is an index of a move
	byIndex bool   // by which rows are told
	comment string // of the table; "": there is none
}

// before returns the identity that a move has changed, and the comment of the table from before.
// "": none has.
func (i identity) before() (was, comment string) {
	comment, kind, ours := strings.Cut(i.comment, moveComment)
	switch {
	case !ours:
		return "", i.comment
	case kind == "n":
		return "NOTHING", comment
	}
	return "DEFAULT", comment
}

// identitiesSQL reads the replica identities of the tables of a schema.
const identitiesSQL = `
SELECT c.relname::text,
  NOT (c.relreplident = 'f'
    OR c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i
      WHERE i.indrelid = c.oid AND i.indisprimary)
    OR c.relreplident = 'i' AND EXISTS (SELECT FROM pg_index i
      WHERE i.indrelid = c.oid AND i.indisreplident)),
  c.relreplident::text, m.indisreplident IS NOT NULL, coalesce(m.indisreplident, false),
  coalesce(obj_description(c.oid, 'pg_class'), '')
FROM pg_class c LEFT JOIN LATERAL (SELECT i.indisreplident
  FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
  WHERE i.indrelid = c.oid AND x.relname = c.relname || '` + moveIndex + `') m ON true
WHERE c.relnamespace = to_regnamespace($1) AND c.relkind = 'r' ORDER BY 1`

func (m *move) identities(ctx context.Context) ([]identity, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	rows, _ := m.conn.Query(ctx, identitiesSQL, m.schema())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (i identity, err error) {
		err = row.Scan(&i.table, &i.missing, &i.kind, &i.indexed, &i.byIndex, &i.comment)
		return i, err
	})
}

// identify gives each table a replica identity that has none, and returns how many tables there
// are.
func (m *move) identify(ctx context.Context) (int, error) {
	all, err := m.identities(ctx)
	if err != nil {
		return 0, err
	}
	for _, i := range all {
		if !i.missing {
			continue
		}
		if strings.HasPrefix(i.table, "ready_") {
			err = m.indexReady(ctx, i)
		} else {
			err = m.alter(ctx, m.commentSQL(i.table, i.comment+moveComment+i.kind),
				m.identitySQL(i.table, `FULL`))
		}
		if err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// indexReady gives a table of tasks in line a unique index, as a task is in line once.
func (m *move) indexReady(ctx context.Context, i identity) error {
	table := i.table
	if i.indexed { // of a failed try
		if err := m.alter(ctx, m.dropIndexSQL(table)); err != nil {
			return err
		}
	}
	index := postgres.Quote(table + moveIndex)
	err := m.exec(ctx, longTime, `CREATE UNIQUE INDEX CONCURRENTLY `+index+` ON `+m.schema()+`.`+
		postgres.Quote(table)+` (type, order_time, id)`)
	if isGone(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return m.alter(ctx, m.commentSQL(table, i.comment+moveComment+i.kind),
		m.identitySQL(table, `USING INDEX `+index))
}

func (m *move) commentSQL(table, comment string) string {
	return `COMMENT ON TABLE ` + m.schema() + `.` + postgres.Quote(table) + ` IS '` +
		strings.ReplaceAll(comment, "'", "''") + `'` // empty: none
}

func (m *move) identitySQL(table, identity string) string {
	return `ALTER TABLE ` + m.schema() + `.` + postgres.Quote(table) + ` REPLICA IDENTITY ` +
		identity
}

func (m *move) dropIndexSQL(table string) string {
	return `DROP INDEX IF EXISTS ` + m.schema() + `.` + postgres.Quote(table+moveIndex)
}

// isGone reports whether a table was dropped meanwhile.
func isGone(err error) bool { return postgres.State(err) == pgerrcode.UndefinedTable }

// forgetIdentities gives the tables back the identities that they had before the move, also after
// an interrupt, and those that an earlier move has left: it is known by its comments and the names
// of its indexes. Other identities are somebody else's.
func (m *move) forgetIdentities(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	all, err := m.identities(ctx)
	for _, i := range all {
		var back []string
		if before, comment := i.before(); before != "" {
			back = append(back, m.commentSQL(i.table, comment), m.identitySQL(i.table, before))
		} else if i.byIndex {
			back = append(back, m.identitySQL(i.table, `DEFAULT`))
		}
		if i.indexed {
			back = append(back, m.dropIndexSQL(i.table))
		}
		if len(back) > 0 {
			err = errors.Join(err, m.alter(ctx, back...))
		}
	}
	return err
}

const (
	// alterPatience is how long a change of a table waits for its lock, and work behind it.
	alterPatience = "200ms"
	alterTries    = 100
	alterPause    = 200 * time.Millisecond
)

// alter changes a table in one transaction, without keeping others waiting for long.
func (m *move) alter(ctx context.Context, changes ...string) (err error) {
	statements := append([]string{`SET LOCAL citus.propagate_set_commands = 'local'`,
		`SET LOCAL lock_timeout = '` + alterPatience + `'`}, changes...)
	for range alterTries {
		err = m.inTransaction(ctx, statements)
		if isGone(err) {
			return nil
		}
		if postgres.State(err) != pgerrcode.LockNotAvailable || !sleep.For(ctx, alterPause) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", changes[0], err)
	}
	return nil
}

// inTransaction runs statements in a transaction, within a bound.
func (m *move) inTransaction(ctx context.Context, statements []string) error {
	ctx, cancel := context.WithTimeout(ctx, statementTime)
	defer cancel()
	return pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
		for _, statement := range statements {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	})
}
