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

// Written is how much the server has written since it was made.
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

// Tables returns the quoted names of a task type's tables of a kind, such as "journal": one, or
// one for each roll.
func (d *Database) Tables(ctx context.Context, kind, taskType string) ([]string, error) {
	rows, err := d.Conn.Query(ctx, `
		SELECT c.oid::regclass::text
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname ~ $2`,
		Schema, "^"+kind+"_"+taskType+"(_[0-9]+)?$")
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no table %s of %s", kind, taskType)
	}
	return names, err
}

// live reports whether any task of a type isn't final. Such a task has a row in one of these
// tables.
func (d *Database) live(ctx context.Context, taskType string) (live bool, err error) {
	var parts []string
	for _, kind := range []string{"ready", "lease", "wait"} {
		names, err := d.Tables(ctx, kind, taskType)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			parts = append(parts, "EXISTS (SELECT FROM "+name+")")
		}
	}
	err = d.Conn.QueryRow(ctx, "SELECT "+strings.Join(parts, " OR ")).Scan(&live)
	return live, err
}

// finals counts the tasks of a type after a number: those that succeeded, and those that ended
// otherwise.
func (d *Database) finals(
	ctx context.Context, taskType string, after int64,
) (succeeded, otherwise int, err error) {
	names, err := d.Tables(ctx, "journal", taskType)
	for _, name := range names {
		var s, o int
		err = d.Conn.QueryRow(ctx, `
			SELECT count(*) FILTER (WHERE final = 'succeeded'),
			       count(*) FILTER (WHERE final <> 'succeeded')
			FROM `+name+` WHERE id > $1`, after).Scan(&s, &o)
		if err != nil {
			break
		}
		succeeded, otherwise = succeeded+s, otherwise+o
	}
	return succeeded, otherwise, err
}

// settled returns percentiles of the time in ms from when a node had a task until its last journal
// row, for the tasks that have ended since a time.
func (d *Database) settled(
	ctx context.Context, taskType string, since time.Time,
) (p50, p99 float64, err error) {
	names, err := d.Tables(ctx, "journal", taskType)
	if err != nil {
		return 0, 0, err
	}
	var parts []string
	for _, name := range names { // the names of a roll's tables differ in their kind only
		tasks := strings.Replace(name, "journal_", "task_", 1)
		parts = append(parts, `
			SELECT j.at - t.created_at AS took FROM `+name+` j JOIN `+tasks+` t USING (id)
			WHERE j.at >= $1 AND j.final IS NOT NULL`)
	}
	const percentile = `
		1000 * extract(epoch FROM percentile_disc(%v) WITHIN GROUP (ORDER BY took))::float8`
	sql := fmt.Sprintf("SELECT "+percentile+", "+percentile+" FROM (%s) s",
		0.5, 0.99, strings.Join(parts, " UNION ALL "))
	err = d.Conn.QueryRow(ctx, sql, since).Scan(&p50, &p99)
	return p50, p99, err
}
