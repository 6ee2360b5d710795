package settings

import (
	"context"
	"errors"
	"slices"
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

// moveIndex ends the names of the indexes that are made for a move.
const moveIndex = "_move"

// identity is how a table is told by logical replication.
type identity struct {
	table   string
	missing bool // rows can't be told
	forMove bool // they can, by what was made for a move
}

// identitiesSQL reads the replica identities of the tables of a schema.
const identitiesSQL = `
SELECT c.relname::text,
  NOT (c.relreplident = 'f'
    OR c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i
      WHERE i.indrelid = c.oid AND i.indisprimary)
    OR c.relreplident = 'i' AND EXISTS (SELECT FROM pg_index i
      WHERE i.indrelid = c.oid AND i.indisreplident)),
  c.relreplident IN ('f', 'i')
FROM pg_class c
WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r' ORDER BY 1`

func (m *move) identities(ctx context.Context) ([]identity, error) {
	rows, _ := m.conn.Query(ctx, identitiesSQL, m.schema())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (i identity, err error) {
		err = row.Scan(&i.table, &i.missing, &i.forMove)
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
			err = m.indexReady(ctx, i.table)
		} else {
			err = m.alter(ctx, i.table, `REPLICA IDENTITY FULL`)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(all), nil
}

// indexReady gives a table of tasks in line a unique index, as a task is in line once.
func (m *move) indexReady(ctx context.Context, table string) error {
	index := table + moveIndex
	for _, statement := range []string{
		`DROP INDEX IF EXISTS ` + m.schema() + `.` + postgres.Quote(index), // of a failed try
		`CREATE UNIQUE INDEX CONCURRENTLY ` + postgres.Quote(index) + ` ON ` + m.schema() + `.` +
			postgres.Quote(table) + ` (type, order_time, id)`,
	} {
		_, err := m.conn.Exec(ctx, statement)
		if isGone(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return m.alter(ctx, table, `REPLICA IDENTITY USING INDEX `+postgres.Quote(index))
}

// isGone reports whether a table was dropped meanwhile.
func isGone(err error) bool { return postgres.State(err) == pgerrcode.UndefinedTable }

// forgetIdentities removes what was made for a move, also after an interrupt, which has closed the
// connection.
func (m *move) forgetIdentities(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	if m.conn.IsClosed() {
		conn, err := postgres.Connect(ctx, m.url)
		if err != nil {
			return err
		}
		m.conn = conn
	}
	all, err := m.identities(ctx)
	all = slices.DeleteFunc(all, func(i identity) bool { return !i.forMove })
	for _, i := range all {
		err = errors.Join(err, m.alter(ctx, i.table, `REPLICA IDENTITY DEFAULT`))
		_, dropped := m.conn.Exec(ctx, `DROP INDEX IF EXISTS `+m.schema()+`.`+
			postgres.Quote(i.table+moveIndex))
		err = errors.Join(err, dropped)
	}
	return err
}

const (
	// alterPatience is how long a change of a table waits for its lock, and work behind it.
	alterPatience = "200ms"
	alterTries    = 100
	alterPause    = 200 * time.Millisecond
)

// alter changes a table, without keeping others waiting for long.
func (m *move) alter(ctx context.Context, table, change string) (err error) {
	for range alterTries {
		err = pgx.BeginFunc(ctx, m.conn, func(tx pgx.Tx) error {
			for _, statement := range []string{
				`SET LOCAL citus.propagate_set_commands = 'local'`,
				`SET LOCAL lock_timeout = '` + alterPatience + `'`,
				`ALTER TABLE ` + m.schema() + `.` + postgres.Quote(table) + ` ` + change,
			} {
				if _, err := tx.Exec(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		})
		if isGone(err) {
			return nil
		}
		if postgres.State(err) != pgerrcode.LockNotAvailable || !sleep.For(ctx, alterPause) {
			return err
		}
	}
	return err
}
