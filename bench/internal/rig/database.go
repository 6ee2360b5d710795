package rig

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Schema is the schema of the tenant.
const Schema = "tenant_" + Tenant

// Database looks at the database of the nodes from outside. It is one connection: not for
// concurrent use.
type Database struct{ Conn *pgx.Conn }

func openDatabase(ctx context.Context, url string) (*Database, error) {
	conn, err := pgx.Connect(ctx, url)
	return &Database{conn}, err
}

func (d *Database) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = d.Conn.Close(ctx)
}

// Version returns the version of Postgres.
func (d *Database) Version() string { return d.Conn.PgConn().ParameterStatus("server_version") }

// Checkpoint lets every round begin alike: with nothing left to write out.
func (d *Database) Checkpoint(ctx context.Context) error {
	_, err := d.Conn.Exec(ctx, `CHECKPOINT`)
	return err
}

// Relations counts all tables, indexes and other relations in the catalog.
func (d *Database) Relations(ctx context.Context) (n int, err error) {
	return n, d.Conn.QueryRow(ctx, `SELECT count(*) FROM pg_class`).Scan(&n)
}

// Written is how much the server wrote since it was made.
type Written struct {
	WAL          int64 // bytes
	Transactions int64 // that wrote something
}

// Written counts transaction ids, and not the commits in pg_stat_database: a connection reports
// those up to 10 s later.
func (d *Database) Written(ctx context.Context) (w Written, err error) {
	err = d.Conn.QueryRow(ctx, `
		SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint,
		       pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&w.WAL, &w.Transactions)
	return w, err
}

// Kept returns the bytes of all tables of the tenant, with their indexes, but for the small ones
// that only hold what is live.
func (d *Database) Kept(ctx context.Context) (bytes int64, err error) {
	return bytes, d.Conn.QueryRow(ctx, `
		SELECT sum(pg_total_relation_size(c.oid))::bigint
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r'
		  AND c.relname !~ '^(ready|lease|wait|outbox|tallies|fan_outs?)(_|$)'`, Schema).Scan(&bytes)
}

// Table holds rows of a task type.
type Table struct {
	Name   string // qualified and quoted
	Number int    // of the type, in a table that types share; 0: the table is the type's own
}

// Rows is what stands behind FROM for the type's rows. It needs an alias.
func (t Table) Rows() string {
	if t.Number == 0 {
		return t.Name
	}
	return fmt.Sprintf("(SELECT * FROM %s WHERE type = %d)", t.Name, t.Number)
}

// Tables returns the tables of a kind, such as "journal", with rows of a task type, oldest first:
// its own and those that types share, with one for each roll. Older revisions share none.
func (d *Database) Tables(ctx context.Context, kind, taskType string) (all []Table, err error) {
	rows, err := d.Conn.Query(ctx, `
		SELECT c.oid::regclass::text, c.relname ~ ('^' || $2 || '(_[0-9]+)?$')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r'
		  AND c.relname ~ ('^' || $2 || '(_' || $3 || ')?(_[0-9]+)?$')
		ORDER BY c.oid`, Schema, kind, taskType)
	if err != nil {
		return nil, err
	}
	var name string
	var shared, anyShared bool
	_, err = pgx.ForEachRow(rows, []any{&name, &shared}, func() error {
		t := Table{Name: name}
		if shared {
			t.Number, anyShared = -1, true
		}
		all = append(all, t)
		return nil
	})
	if err == nil && anyShared {
		err = d.number(ctx, taskType, all)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("there is no table %s of %s", kind, taskType)
	}
	return all, err
}

// number sets the type's number in the tables that types share.
func (d *Database) number(ctx context.Context, taskType string, tables []Table) error {
	var number int
	err := d.Conn.QueryRow(ctx,
		`SELECT number FROM `+Schema+`.task_types WHERE name = $1`, taskType).Scan(&number)
	for i := range tables {
		if tables[i].Number != 0 {
			tables[i].Number = number
		}
	}
	return err
}

// tablesByTenant returns all tables of some kinds, such as "ready|lease", by tenant, for the
// tenants with many types.
func (d *Database) tablesByTenant(ctx context.Context, kinds string) (all [][]string, err error) {
	rows, err := d.Conn.Query(ctx, `
		SELECT array_agg(c.oid::regclass::text)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname ~ $1 AND c.relkind = 'r' AND c.relname ~ ('^(' || $2 || ')(_|$)')
		GROUP BY n.oid`, "^tenant_"+manyPrefix+"[0-9]+$", kinds)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[[]string])
}

// Live reports whether any task of a type isn't final. There is a row of such a task in one of
// these tables.
func (d *Database) Live(ctx context.Context, taskType string) (bool, error) {
	var all []string
	for _, kind := range []string{"ready", "lease", "wait"} {
		tables, err := d.Tables(ctx, kind, taskType)
		if err != nil {
			return false, err
		}
		for _, t := range tables {
			all = append(all, t.Rows())
		}
	}
	return d.anyRow(ctx, all)
}

// Count counts the rows of a task type in tables of a kind.
func (d *Database) Count(ctx context.Context, kind, taskType string) (n int, err error) {
	tables, err := d.Tables(ctx, kind, taskType)
	for _, t := range tables {
		var rows int
		err := d.Conn.QueryRow(ctx, "SELECT count(*) FROM "+t.Rows()+" t").Scan(&rows)
		if err != nil {
			return 0, err
		}
		n += rows
	}
	return n, err
}

// anyRow reports whether there is a row in one of several tables.
func (d *Database) anyRow(ctx context.Context, tables []string) (found bool, err error) {
	parts := make([]string, len(tables))
	for i, name := range tables {
		parts[i] = "EXISTS (SELECT FROM " + name + " t)"
	}
	err = d.Conn.QueryRow(ctx, "SELECT "+strings.Join(parts, " OR ")).Scan(&found)
	return found, err
}

// finals counts the tasks of a type, except some: how many succeeded, and how many ended
// otherwise.
func (d *Database) finals(
	ctx context.Context, taskType string, except Range,
) (succeeded, otherwise int, err error) {
	tables, err := d.Tables(ctx, "journal", taskType)
	for _, t := range tables {
		s, o, err := d.finalsIn(ctx, t.Rows(), except)
		if err != nil {
			return 0, 0, err
		}
		succeeded, otherwise = succeeded+s, otherwise+o
	}
	return succeeded, otherwise, err
}

// finalsIn counts them in one table.
func (d *Database) finalsIn(
	ctx context.Context, journal string, except Range,
) (succeeded, otherwise int, err error) {
	err = d.Conn.QueryRow(ctx, `
		SELECT count(*) FILTER (WHERE final = 'succeeded'),
		       count(*) FILTER (WHERE final <> 'succeeded')
		FROM `+journal+` j WHERE id NOT BETWEEN $1 AND $2`, except.First, except.Last).
		Scan(&succeeded, &otherwise)
	return succeeded, otherwise, err
}

// settled returns percentiles of the time in ms from when a node had a task until its last journal
// row, for the tasks that ended since a time.
func (d *Database) settled(
	ctx context.Context, taskType string, since time.Time,
) (p50, p99 float64, err error) {
	journals, err := d.Tables(ctx, "journal", taskType)
	if err != nil {
		return 0, 0, err
	}
	var parts []string
	for _, journal := range journals { // the names of a roll's tables differ in their kind only
		tasks := Table{strings.Replace(journal.Name, "journal_", "task_", 1), journal.Number}
		parts = append(parts, `
			SELECT j.at - t.created_at AS took
			FROM `+journal.Rows()+` j JOIN `+tasks.Rows()+` t USING (id)
			WHERE j.at >= $1 AND j.final IS NOT NULL`)
	}
	const percentile = `
		1000 * extract(epoch FROM percentile_disc(%v) WITHIN GROUP (ORDER BY took))::float8`
	sql := fmt.Sprintf("SELECT "+percentile+", "+percentile+" FROM (%s) s",
		0.5, 0.99, strings.Join(parts, " UNION ALL "))
	err = d.Conn.QueryRow(ctx, sql, since).Scan(&p50, &p99)
	return p50, p99, err
}
