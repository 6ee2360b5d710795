package checkup

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// server looks at settings that cost writes, or what Postgres has confirmed.
func (c *checkup) server(ctx context.Context, f *findings) error {
	var readOnly, standby bool
	var version, fsync, pages, names string
	var attached int
	err := c.conn.QueryRow(ctx, `SELECT current_setting('transaction_read_only')::boolean,
		pg_is_in_recovery(), current_setting('server_version'), current_setting('fsync'),
		current_setting('full_page_writes'), current_setting('synchronous_standby_names'),
		(SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum'))`).
		Scan(&readOnly, &standby, &version, &fsync, &pages, &names, &attached)
	if err != nil {
		return err
	}
	if standby || readOnly {
		f.add(LevelProblem, "let DATABASE_URL name the server that accepts writes",
			"the server is read-only, as a standby is")
	}
	if fsync == "off" {
		f.add(LevelProblem, "set fsync = on",
			"fsync is off: a crash of the machine loses confirmed tasks, or the database")
	}
	if pages == "off" {
		f.add(LevelProblem, "set full_page_writes = on, unless the file system writes whole pages",
			"full_page_writes is off: a crash of the machine may break the database")
	}
	switch {
	case strings.TrimSpace(names) == "":
		f.add(LevelNote, "for tasks that outlive a disk, add a synchronous standby",
			"Postgres %s confirms what is on its own disk: no standby is synchronous", version)
	case attached == 0 && !standby:
		f.add(LevelProblem, "start the standby, or change synchronous_standby_names",
			"no synchronous standby is attached, and synchronous_standby_names is %q: submits wait "+
				"(the check needs the role pg_monitor to see standbys)", names)
	}
	if f.server == "" {
		if err := c.citus(ctx, f); err != nil {
			return err
		}
	}
	return c.unsynced(ctx, f)
}

// unsynced finds where synchronous_commit is off. Nodes set it themselves, but a program that
// submits by SQL has the server's setting.
func (c *checkup) unsynced(ctx context.Context, f *findings) error {
	rows, _ := c.conn.Query(ctx, `
		SELECT 'this server', reset_val FROM pg_settings
		WHERE name = 'synchronous_commit'
		UNION ALL SELECT concat_ws(' in ', 'the role ' || nullif(setrole, 0)::regrole,
		    'the database ' || d.datname), split_part(s, '=', 2)
		FROM pg_db_role_setting LEFT JOIN pg_database d ON d.oid = setdatabase, unnest(setconfig) s
		WHERE s LIKE 'synchronous_commit=%' AND setdatabase IN (0, (SELECT oid FROM pg_database
		  WHERE datname = current_database()))
		ORDER BY 1`)
	var who, value string
	_, err := pgx.ForEachRow(rows, []any{&who, &value}, func() error {
		if value == "off" {
			f.add(LevelWarning, "set it to on, at least for roles that submit by SQL",
				"synchronous_commit is off for %s: a crash loses tasks that were just submitted by "+
					"SQL (nodes set it to on)", who)
		}
		return nil
	})
	return err
}

// clockOff is the difference of two clocks that is too much: tokens and signatures have times.
const clockOff = 2 * time.Second

// clock compares the clock of this machine with that of the server.
func (c *checkup) clock(ctx context.Context, f *findings) error {
	var there time.Time
	before := time.Now()
	if err := c.conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&there); err != nil {
		return err
	}
	trip := time.Since(before)
	off := there.Sub(before.Add(trip/2)).Abs() - trip/2
	if off > clockOff {
		f.add(LevelWarning, "let both follow the same time server",
			"the clocks of this machine and the server differ by %s: tokens are judged by the one, "+
				"tasks by the other", off.Round(time.Millisecond))
	}
	return nil
}

// oldTransaction is the age from which a transaction is reported: rows that were deleted since it
// began stay, and each lease passes them.
const oldTransaction = 5 * time.Minute

// transactions finds what keeps deleted rows alive.
func (c *checkup) transactions(ctx context.Context, f *findings) error {
	rows, _ := c.conn.Query(ctx, `
		SELECT 'the transaction of process ' || pid || ' (' || coalesce(usename, '?') || ', ' ||
		  coalesce(nullif(application_name, ''), 'without a name') || ', ' ||
		  coalesce(state, '?') || ')', clock_timestamp() - xact_start,
		  'end it there, or: SELECT pg_terminate_backend(' || pid || ')'
		FROM pg_stat_activity WHERE xact_start < clock_timestamp() - $1::interval
		  AND backend_type = 'client backend' AND pid <> pg_backend_pid()
		UNION ALL SELECT 'the prepared transaction ' || gid, clock_timestamp() - prepared,
		  'COMMIT PREPARED or ROLLBACK PREPARED ' || quote_literal(gid)
		FROM pg_prepared_xacts WHERE prepared < clock_timestamp() - $1::interval
		ORDER BY 2 DESC LIMIT $2`, c.old, mostFindings+1)
	var who, do string
	var age time.Duration
	_, err := pgx.ForEachRow(rows, []any{&who, &age, &do}, func() error {
		f.add(LevelWarning, do, "%s is %s old: deleted rows stay as long as it does", who,
			age.Round(time.Second))
		return nil
	})
	if err != nil {
		return err
	}
	var slots []string
	err = c.conn.QueryRow(ctx, `SELECT coalesce(array_agg(slot_name::text ORDER BY 1), '{}')
		FROM pg_replication_slots WHERE NOT active`).Scan(&slots)
	for _, slot := range slots {
		f.add(LevelWarning, "let its reader come back, or drop it: SELECT pg_drop_replication_slot",
			"nobody reads the replication slot %s: the server keeps WAL for it", slot)
	}
	return err
}

const (
	// manyDead is the number of dead rows from which a table with fewer live ones is reported.
	manyDead = 1_000_000
	// manyDeadHot is that of the small tables from which tasks are leased: each lease passes them.
	manyDeadHot = 100_000
)

// vacuum finds what keeps tables from being cleaned.
func (c *checkup) vacuum(ctx context.Context, f *findings) error {
	var off []string
	err := c.conn.QueryRow(ctx, `SELECT coalesce(array_agg(name ORDER BY name), '{}')
		FROM pg_settings WHERE name IN ('autovacuum', 'track_counts') AND setting = 'off'`).
		Scan(&off)
	if err != nil {
		return err
	}
	for _, name := range off {
		f.add(LevelProblem, "set "+name+" = on", "%s is off: tables are cleaned by nobody", name)
	}
	rows, _ := c.conn.Query(ctx, `SELECT schemaname || '.' || relname, n_live_tup, n_dead_tup
		FROM pg_stat_user_tables WHERE schemaname LIKE 'tenant\_%'
		  AND n_dead_tup > greatest(n_live_tup,
		    CASE WHEN relname ~ '^(ready_|(lease|wait)(_[0-9]+)?$)' -- with the number of a shard
		    THEN $3::bigint ELSE $1::bigint END)
		ORDER BY n_dead_tup DESC LIMIT $2`, c.dead, mostFindings+1, c.deadHot)
	var table string
	var live, dead int64
	_, err = pgx.ForEachRow(rows, []any{&table, &live, &dead}, func() error {
		f.add(LevelWarning, "look at the findings of transactions first; then: VACUUM "+table,
			"%s has %d dead rows and %d live ones", table, dead, live)
		return nil
	})
	return err
}
