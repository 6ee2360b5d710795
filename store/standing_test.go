package store_test

import (
	"fmt"
	"strings"

	"github.com/asyncflow/asyncflow/store"
)

// standing says what may explain that a lease of a type finds nothing: the clocks, what the node
// knows of the type, its marks, the rows of the tenant, and who has which locks.
func (b *bundle) standing(t *store.Type) string {
	var all strings.Builder
	leases, next, err := b.Lease(b.t.Context(), t, 1)
	now, err2 := b.Catalog.Type(t.Tenant, t.Name)
	fmt.Fprintf(&all, "clock %v\nlease %v, next %v, %v\ntype %d v%d, live %v, rolls %v\n",
		b.Clock.Now(), leases, next, err, t.Number(), t.Version, t.Live(), t.Rolls())
	if err2 == nil {
		fmt.Fprintf(&all, "catalog: v%d, live %v, rolls %v\n", now.Version, now.Live(), now.Rolls())
	}
	fmt.Fprintf(&all, "marks\n%s", b.MarksOf(t.Key()))
	for _, sql := range []string{
		`SELECT clock_timestamp()`,
		`SELECT pid, state, wait_event_type, wait_event, xact_start, state_change, query
			FROM pg_stat_activity WHERE datname = current_database()`,
		`SELECT pid, locktype, relation::regclass, mode, granted FROM pg_locks
			WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
			  OR NOT granted`,
		`SELECT tableoid::regclass, r.* FROM tenant_acme.rolls r`,
		t.SQL(0, `SELECT tableoid::regclass, w.* FROM {wait} w`),
		t.SQL(0, `SELECT tableoid::regclass, l.* FROM {lease} l`),
		t.SQL(0, `SELECT tableoid::regclass, o.* FROM {outbox} o`),
		t.SQL(0, `SELECT tableoid::regclass, f.* FROM {fan_outs} f`),
	} {
		b.show(&all, sql)
	}
	for _, position := range t.Rolls() {
		b.show(&all, t.SQL(position, `SELECT tableoid::regclass, r.* FROM {ready} r`))
		b.show(&all, t.SQL(position, `SELECT tableoid::regclass, type, id, seq, at, stage, outcome,
			final, error, next_time FROM {journal} ORDER BY at DESC`))
	}
	return all.String()
}

// show writes the first rows of a query.
func (b *bundle) show(to *strings.Builder, sql string) {
	rows, err := b.db.Query(b.t.Context(), `SELECT row_to_json(q)::text FROM (`+sql+`) q LIMIT 30`)
	for err == nil && rows.Next() {
		var text string
		err = rows.Scan(&text)
		fmt.Fprintln(to, text)
	}
	if err == nil {
		err = rows.Err()
	}
	if err != nil {
		fmt.Fprintf(to, "%s: %v\n", sql, err)
	}
}
