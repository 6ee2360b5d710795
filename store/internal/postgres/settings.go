package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
)

// Every setting of a connection that asyncflow relies on, each with the reason. Those of
// tables are in package store (table_settings.go).

// SearchPath leaves names without a schema to Postgres's own tables, types, functions and
// operators. Without it Postgres also looks into the schema public, where other roles may be
// allowed to create things. A function of theirs that fits a call better than Postgres's own would
// run as our user.
const SearchPath = `pg_catalog, pg_temp`

// commonSettings are the settings of every transaction. A connection must not keep rows locked
// when its node is stopped or cut off.
var commonSettings = map[string]string{
	"search_path": SearchPath,
	// date_trunc and texts of times are the same everywhere.
	"timezone":      "UTC",
	"datestyle":     "ISO, YMD",
	"intervalstyle": "postgres",
	// An answer promises that the task is on disk, whatever the server's default.
	"synchronous_commit": "on",
	// A warning says that the wait for a standby was cancelled, see noteNotReplicated.
	"client_min_messages": "warning",
	// ms; for a node that was stopped within a transaction.
	"idle_in_transaction_session_timeout": "5000",
	// ms; no statement of a request or a job takes longer when all is well.
	"statement_timeout": "30000",
}

// connectionSettings are the settings of every connection that keeps them.
var connectionSettings = merged(commonSettings, map[string]string{
	// A transaction takes locks and then looks at what is there, whatever the server's default is.
	"default_transaction_isolation": "read committed",
	// The name in pg_stat_activity.
	"application_name": applicationName,
	// s; these three give up a silent peer after about 10 s.
	"tcp_keepalives_idle":     "5",
	"tcp_keepalives_interval": "2",
	"tcp_keepalives_count":    "3",
	// ms; the same for a peer that doesn't take what it is sent.
	"tcp_user_timeout": "10000",
})

const applicationName = "asyncflow"

// transactionSettings are set at the beginning of each transaction of a pooled connection. The
// settings of its socket are the pooler's, and its name is given when the connection begins.
var transactionSettings = merged(commonSettings, map[string]string{
	// Clients share what is prepared on a connection of the server, and a plan that one keeps is
	// another's, too. So statements are planned each time, unless their plan is pinned: whoever
	// pins it keeps the same settings. There is one plan for all of a statement without parameters.
	"plan_cache_mode": "force_custom_plan",
})

// AdminSettings are the settings of connections outside the pools, whatever the server's defaults:
// for administration and migrations. ctx is the only deadline of their statements, and a session
// that holds a lock for another one is idle meanwhile.
var AdminSettings = merged(connectionSettings, map[string]string{
	"statement_timeout":                   "0",
	"lock_timeout":                        "0",
	"idle_in_transaction_session_timeout": "0",
})

// PinnedSettings are for statements that read a few rows by index from tables that are never
// analysed, as their size swings between nothing and millions. So the planner is left no other
// plan.
var PinnedSettings = map[string]string{
	// It would read all of a table that looked empty when the statement was planned.
	"enable_seqscan": "off",
	// It would sort the whole backlog at each lease: 41,000 -> 4,100 tasks/s.
	"enable_sort": "off",
	// The same for all rows that are equal in the part of an order that an index gives.
	"enable_incremental_sort": "off",
	// It gives no order, so it needs a sort.
	"enable_bitmapscan": "off",
	// These two read all of a table for a few ids.
	"enable_hashjoin":  "off",
	"enable_mergejoin": "off",
	// Each connection plans once: a plan costs more than most of these statements take.
	"plan_cache_mode": "force_generic_plan",
	// It costs tens of ms where an estimate is far off.
	"jit": "off",
	// Workers cost more to start than a few rows take (a page of a list from 10 million
	// tasks: 18 ms, else 1 ms).
	"max_parallel_workers_per_gather": "0",
}

// HotSettings are added for the connections that submit, lease and settle.
var HotSettings = merged(PinnedSettings, map[string]string{
	// ms; tenants share connections and transactions, and one with a locked table must not keep
	// the rest waiting. These statements hardly ever wait for a lock: autovacuum takes none that
	// they need (tables keep their empty pages, see hotTable), and a seal waits for the commits
	// under way. Measured: of 60,000 single submits with cores shared with other work, none met
	// this limit. What does is tried again 10 ms later. Being shorter than deadlock_timeout, it
	// also ends deadlocks. SET LOCAL would not do: pgx prepares statements outside of their
	// transaction.
	"lock_timeout": "5",
})

// compressionSQL asks whether long contexts and outputs are compressed by lz4: unless an operator
// chose for the server or there is no lz4 on the server. Behind a pooler the search path is any.
const compressionSQL = `
SELECT EXISTS (SELECT FROM pg_catalog.pg_settings
  WHERE name OPERATOR(pg_catalog.=) 'default_toast_compression'
    AND 'lz4' OPERATOR(pg_catalog.=) ANY (enumvals)
    AND source OPERATOR(pg_catalog.=) 'default')`

// compression says for a while which servers compress by lz4. compressionSQL takes a server some
// ms, which is much for each new connection.
type compression struct {
	mu    sync.Mutex
	lz4   map[string]bool // by the server's address
	until time.Time       // when all are asked again
}

const compressionTime = time.Minute

// choose chooses for a new connection, as each may reach another server.
func (c *compression) choose(ctx context.Context, conn *pgx.Conn) error {
	lz4, err := c.asked(ctx, conn)
	if err != nil || !lz4 {
		return err
	}
	_, err = conn.PgConn().Exec(ctx, `SET default_toast_compression = lz4`).ReadAll()
	if State(err) == pgerrcode.InvalidParameterValue { // another server answers at that address now
		return nil
	}
	return err
}

// forget makes all servers be asked again.
func (c *compression) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = time.Time{}
}

func (c *compression) asked(ctx context.Context, conn *pgx.Conn) (lz4 bool, err error) {
	server := conn.PgConn().Conn().RemoteAddr().String()
	now := time.Now()
	c.mu.Lock()
	if now.After(c.until) {
		c.lz4 = map[string]bool{}
		c.until = now.Add(compressionTime)
	}
	lz4, known := c.lz4[server]
	c.mu.Unlock()
	if known {
		return lz4, nil
	}
	err = conn.QueryRow(ctx, compressionSQL, pgx.QueryExecModeSimpleProtocol).Scan(&lz4)
	if err != nil {
		return lz4, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lz4[server] = lz4
	return lz4, nil
}
