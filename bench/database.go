package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// schema is the tenant's.
const schema = "tenant_" + tenant

// database looks at the node's database from the side. It is one connection:
// not for concurrent use.
type database struct{ conn *pgx.Conn }

func openDatabase(ctx context.Context, url string) (*database, error) {
	conn, err := pgx.Connect(ctx, url)
	return &database{conn}, err
}

func (d *database) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = d.conn.Close(ctx)
}

func (d *database) version(ctx context.Context) (version string, err error) {
	err = d.conn.QueryRow(ctx, `SHOW server_version`).Scan(&version)
	return version, err
}

// checkpoint makes every round begin alike: with nothing left to write out.
func (d *database) checkpoint(ctx context.Context) error {
	_, err := d.conn.Exec(ctx, `CHECKPOINT`)
	return err
}

// written is how much the server has written so far.
type written struct {
	wal          int64 // bytes
	transactions int64 // that wrote something
}

// written counts transaction ids and not the commits in pg_stat_database: those
// are told by a connection up to 10 s later.
func (d *database) written(ctx context.Context) (w written, err error) {
	err = d.conn.QueryRow(ctx, `
		SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint,
		       pg_snapshot_xmax(pg_current_snapshot())::text::bigint`).Scan(&w.wal, &w.transactions)
	return w, err
}

// tables returns the quoted names of a task type's tables of a kind, such as
// "journal": one, or one for each roll.
func (d *database) tables(ctx context.Context, kind, taskType string) ([]string, error) {
	rows, err := d.conn.Query(ctx, `
		SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r' AND c.relname ~ $2`, schema, "^"+kind+"_"+taskType+"(_[0-9]+)?$")
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("there is no table %s of %s", kind, taskType)
	}
	return names, err
}

// live tells whether any task of a type is not final: it then has a row in one of
// these.
func (d *database) live(ctx context.Context, taskType string) (live bool, err error) {
	var parts []string
	for _, kind := range []string{"ready", "lease", "wait"} {
		names, err := d.tables(ctx, kind, taskType)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			parts = append(parts, "EXISTS (SELECT FROM "+name+")")
		}
	}
	err = d.conn.QueryRow(ctx, "SELECT "+strings.Join(parts, " OR ")).Scan(&live)
	return live, err
}

// succeeded counts the tasks of a type after a number: those that ended well, and those
// that ended otherwise.
func (d *database) succeeded(ctx context.Context, taskType string, after int64) (well, otherwise int, err error) {
	names, err := d.tables(ctx, "journal", taskType)
	for _, name := range names {
		var w, o int
		err = d.conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE final = 'succeeded'), count(*) FILTER (WHERE final <> 'succeeded')
			FROM `+name+` WHERE id > $1`, after).Scan(&w, &o)
		if err != nil {
			break
		}
		well, otherwise = well+w, otherwise+o
	}
	return well, otherwise, err
}

// settled returns percentiles of the time in ms from when a node had a task until the time of
// its last journal row: of tasks that have ended since a time.
func (d *database) settled(ctx context.Context, taskType string, since time.Time) (p50, p99 float64, err error) {
	names, err := d.tables(ctx, "journal", taskType)
	if err != nil {
		return 0, 0, err
	}
	var parts []string
	for _, name := range names { // the tables of a roll differ in their kind only
		parts = append(parts, "SELECT j.at - t.created_at AS took FROM "+name+" j JOIN "+strings.Replace(name, "journal_", "task_", 1)+
			" t USING (id) WHERE j.at >= $1 AND j.final IS NOT NULL")
	}
	const percentile = `1000 * extract(epoch FROM percentile_disc(%v) WITHIN GROUP (ORDER BY took))::float8`
	err = d.conn.QueryRow(ctx, fmt.Sprintf("SELECT "+percentile+", "+percentile+" FROM (%s) s", 0.5, 0.99, strings.Join(parts, " UNION ALL ")), since).Scan(&p50, &p99)
	return p50, p99, err
}
