package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// rows are the rows that a transaction inserts for task types of one tenant. Each table gets one
// statement. If its rows have most values in common, as those of one busy type do, the statement has
// these once, and only the others as arrays, which Postgres must unnest value by value.
type rows struct {
	node    string
	ready   groups[rolled, readyRow]
	journal groups[rolled, journalRow]
	waiting []waitRow
	leased  []leaseRow
	counts  []tallyRow
	tables  *tables // of any of the sets
}

// rolled names the tables of a roll.
type rolled struct {
	tables   *tables
	position int
}

// spot is a task's progress: the seq of its token row, its stage, and its attempt there.
type spot struct {
	seq     int16
	stage   string
	attempt int16
}

// typed is the spot of a task of a type.
type typed struct {
	number int32
	spot
}

// addTokens adds token rows of tasks of a type.
func (r *rows) addTokens(t *Type, ts *tokens) {
	r.tables = t.set.tables
	if len(ts.ready) > 0 {
		of := r.ready.of(rolled{t.set.tables, t.End})
		for _, row := range ts.ready {
			row.number = t.number
			*of = append(*of, row)
		}
	}
	for _, row := range ts.wait {
		row.number = t.number
		r.waiting = append(r.waiting, row)
	}
}

// addJournal adds the journal rows of settlements of a type.
func (r *rows) addJournal(t *Type, settled *asyncflow.Settlement) {
	r.tables = t.set.tables
	position := settled.Lease.ID.Position()
	of := r.journal.of(rolled{t.setAt(position).tables, position})
	*of = append(*of, newJournalRow(t, settled))
}

// addLeases adds leases of tasks of a type. keys are their flow keys; nil: none.
func (r *rows) addLeases(t *Type, leases []*asyncflow.Lease, keys texts) {
	r.tables = t.set.tables
	for i, l := range leases {
		row := leaseRow{leaseKey: leaseKey{
			typed{t.number, spot{int16(l.Seq), l.Stage, int16(l.Attempt)}}, l.Until, l.Endpoint},
			id: l.ID.Number, began: l.LeasedAt}
		if keys != nil {
			row.key = keys[i]
		}
		r.leased = append(r.leased, row)
	}
}

// addTally adds the counts of a type, unless there is nothing to count.
func (r *rows) addTally(t *Type, c tally) {
	r.tables = t.set.tables
	if c != (tally{}) {
		r.counts = append(r.counts, tallyRow{t.Name, c})
	}
}

// queue adds the inserts to a batch.
func (r *rows) queue(b *pgx.Batch, now time.Time) {
	for i, at := range r.ready.keys {
		queueReady(b, at, *r.ready.rows[i])
	}
	if len(r.waiting) > 0 {
		queueWait(b, r.tables, r.waiting)
	}
	if len(r.leased) > 0 {
		queueLeases(b, r.tables, r.leased, r.node)
	}
	for i, at := range r.journal.keys {
		queueJournal(b, at, *r.journal.rows[i], now)
	}
	if len(r.counts) > 0 {
		queueTallies(b, r.tables, r.counts, now)
	}
}

// same reports whether key returns the same for all rows.
func same[Row any, K comparable](rows []Row, key func(*Row) K) bool {
	first := key(&rows[0])
	for i := range rows {
		if key(&rows[i]) != first {
			return false
		}
	}
	return true
}

// column returns a value of each row.
func column[Row, V any](rows []Row, value func(*Row) V) pgtype.FlatArray[V] {
	all := make(pgtype.FlatArray[V], len(rows))
	for i := range rows {
		all[i] = value(&rows[i])
	}
	return all
}

// groups has rows by their table.
type groups[K comparable, Row any] struct {
	keys []K
	rows []*[]Row
}

// of returns the rows of a group. There are few groups, and mostly it is the latest.
func (g *groups[K, Row]) of(key K) *[]Row {
	for i := len(g.keys) - 1; i >= 0; i-- {
		if g.keys[i] == key {
			return g.rows[i]
		}
	}
	g.keys, g.rows = append(g.keys, key), append(g.rows, new([]Row))
	return g.rows[len(g.rows)-1]
}

// orNull returns a pointer to v, or nil for the zero value.
func orNull[V comparable](v V) *V {
	var zero V
	if v == zero {
		return nil
	}
	return &v
}
