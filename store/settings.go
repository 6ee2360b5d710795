package store

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Every setting of Postgres that asyncflow relies on, each with the reason.

// connectionSettings are those of every connection. One must not keep rows locked when
// its node is stopped or cut off.
var connectionSettings = map[string]string{
	"application_name":                    "asyncflow", // to be found in pg_stat_activity
	"timezone":                            "UTC",       // date_trunc and texts of times are the same everywhere
	"synchronous_commit":                  "on",        // an answer promises that the task is on disk, whatever the server's default
	"client_min_messages":                 "warning",   // that a commit was not waited for, see noteNotReplicated
	"idle_in_transaction_session_timeout": "5000",      // ms: a node that was stopped within a transaction
	"statement_timeout":                   "30000",     // ms: nothing that a request or a job asks takes longer when all is well
	"tcp_keepalives_idle":                 "5",         // s: with the next two, a peer that is silent is given up after about 10 s
	"tcp_keepalives_interval":             "2",
	"tcp_keepalives_count":                "3",
	"tcp_user_timeout":                    "10000", // ms: the same for one that doesn't take what it is sent
}

// hotSettings are those of the connections that submit, lease and settle, on top. Their
// statements read a few rows by index from tables that are never analysed, as their size
// swings between nothing and millions. So the planner is left no other plan.
var hotSettings = map[string]string{
	"enable_seqscan":    "off",                // of a table that looked empty when it was planned
	"enable_sort":       "off",                // of the whole backlog at each lease: 41,000 -> 4,100 tasks/s
	"enable_bitmapscan": "off",                // gives no order, so it sorts
	"enable_hashjoin":   "off",                // reads all of a table for some ids
	"enable_mergejoin":  "off",                // the same
	"plan_cache_mode":   "force_generic_plan", // planned once for each connection: a plan costs more than most of these take
	"jit":               "off",                // costs tens of ms where an estimate is far off

	// Workers cost more to start than a few rows take (a page of a list from 10 million
	// tasks: 18 ms, else 1 ms).
	"max_parallel_workers_per_gather": "0",
}

// compressionSQL has contexts and outputs that are long compressed by lz4. Where somebody
// has chosen for the server, or it can't, that stands.
const compressionSQL = `
SELECT set_config(name, 'lz4', false) FROM pg_settings
WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals) AND source = 'default'`

// compressWell sets it for a new connection: the server may be another one by now.
func compressWell(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, compressionSQL, pgx.QueryExecModeSimpleProtocol)
	return err
}

const (
	// coldTable keeps vacuum from tables that are only ever inserted into and are dropped
	// whole: it would read all of them again and again, and find nothing.
	coldTable = "autovacuum_vacuum_insert_threshold = -1"

	// hotTable has vacuum come to a small, busy table after a count of changes, at full
	// speed, where the job vacuum of governance doesn't (lease statement after a minute:
	// 28.5 -> 4.8 µs a task). Analyze never comes: one that sees the table empty turns
	// plans round. Giving pages back would take an exclusive lock.
	hotTable = "vacuum_truncate = off, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, " +
		"autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 2000000000"

	// leaseTable leaves room in the pages of lease tables, so that a heartbeat's new
	// version of a row stays in its page and no index entry is written (HOT).
	leaseTable = "fillfactor = 70"
)
