package postgres

import (
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// entry is what the transactions of a connection begin with. A direct connection keeps its settings
// and needs a tenant's role only. A pooled one keeps nothing between two transactions: each takes
// its role and all settings, in one statement.
type entry struct {
	settings string // as calls of set_config; "": the connection keeps them
	alone    string // the statement without a role; "" for none
	withRole string // the statement that takes the role $1
	// distributed says that tenants may be on workers of Citus.
	distributed bool
	// patience sets how long a transaction waits for locks, where workers are to do the same: they
	// don't know what a connection to the coordinator has set. "": as they have it.
	patience string
}

// direct is the entry of connections that keep their settings.
var direct = &entry{withRole: setRole}

// distribute makes an entry one where tenants may be on workers of Citus.
func (e *entry) distribute(hot bool) {
	e.distributed = true
	if hot {
		e.patience = "SET LOCAL lock_timeout = " + HotSettings["lock_timeout"]
	}
}

// newEntry returns the entry of a pooled connection.
func newEntry(settings map[string]string) *entry {
	var calls []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		calls = append(calls, "pg_catalog.set_config("+literal(name)+", "+
			literal(settings[name])+", true)")
	}
	e := &entry{settings: strings.Join(calls, ", ")}
	e.alone = "SELECT " + e.settings
	e.withRole = "SELECT pg_catalog.set_config('role', $1, true), " + e.settings
	return e
}

// literal quotes a text, for servers with standard_conforming_strings, which is the default.
func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// entryKey is the key under which a connection keeps its entry.
const entryKey = "asyncflow: entry"

func entryOf(conn *pgxpool.Conn) *entry {
	if e, ok := conn.Conn().PgConn().CustomData()[entryKey].(*entry); ok {
		return e
	}
	return direct
}

// Distributed reports whether tenants may be on workers of Citus, where a transaction is.
func Distributed(tx pgx.Tx) bool {
	e, ok := tx.Conn().PgConn().CustomData()[entryKey].(*entry)
	return ok && e.distributed
}

// queue adds the statement that a transaction begins with to a batch, and reports whether there is
// one.
func (e *entry) queue(b *pgx.Batch, role string) bool {
	switch {
	case role != "":
		b.Queue(e.withRole, role)
	case e.alone != "":
		b.Queue(e.alone)
	default:
		return false
	}
	return true
}

// begin returns the statements that begin a transaction by themselves; "": BEGIN will do.
func (e *entry) begin(role string) string {
	var begin, statements string
	switch {
	case role == "":
	case e.distributed: // Citus would have each worker take it, whoever logs in there later
		statements = "; SET LOCAL " + propagateSetting + " = 'none'; SET LOCAL ROLE " +
			Quote(role) + "; SET LOCAL " + propagateSetting + " = 'local'"
	default:
		statements = "; SET LOCAL ROLE " + Quote(role)
	}
	if e.alone != "" { // its connection doesn't keep the isolation that others set
		begin = " ISOLATION LEVEL READ COMMITTED"
		statements += "; " + e.alone
	}
	if e.patience != "" {
		statements += "; " + e.patience
	}
	if statements == "" {
		return ""
	}
	return "BEGIN" + begin + statements
}
