package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// rows are the rows that a transaction inserts for task types of one tenant. Rows with the same
// common values are inserted by one statement, which has these once, and only the other values as
// arrays: Postgres unnests each array by itself (22 µs for one row by nine of them, 6 µs by one).
type rows struct {
	node          string
	ready         groups[readyKey, readyRow]
	journal       groups[journalKey, journalRow]
	leased        groups[leaseKey, leaseRow]
	waiting       []waitRow
	counts        []tallyRow
	fanOuts       []fanOutRow
	outbox        []outboxRow
	removedVoters []voteRow
	// children are the places in outbox of the children of each fan-out.
	children map[fanOutKey]int
	tables   *tables // of any of the sets
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
	for _, row := range ts.ready {
		if t.inLineForClaims(row.stage) {
			r.waiting = append(r.waiting, row.forClaims(t))
			continue
		}
		key := readyKey{rolled{t.set.tables, t.End}, typed{t.number, row.spot},
			row.key != nil || row.since != nil}
		r.ready.add(key, row)
	}
	for _, row := range ts.wait {
		row.number = t.number
		r.waiting = append(r.waiting, row)
	}
}

// addJournal adds the journal row of a settlement of a type.
func (r *rows) addJournal(t *Type, settled *asyncflow.Settlement) {
	r.tables = t.set.tables
	r.journal.add(newJournalRow(t, settled))
}

// addLeases adds leases of tasks of a type. keys are their flow keys; nil: none.
func (r *rows) addLeases(t *Type, leases []*asyncflow.Lease, keys texts) {
	r.tables = t.set.tables
	for i, l := range leases {
		row := leaseRow{id: l.ID.Number}
		if keys != nil {
			row.key = keys[i]
		}
		r.leased.add(leaseKey{typed{t.number, spot{int16(l.Seq), l.Stage, int16(l.Attempt)}}, l.LeasedAt,
			l.Until, l.Endpoint, row.key != nil, l.Unsent}, row)
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
	for i, k := range r.ready.keys {
		queueReady(b, k, *r.ready.rows[i])
	}
	if len(r.waiting) > 0 {
		queueWait(b, r.tables, r.waiting)
	}
	for i, k := range r.leased.keys {
		queueLeases(b, r.tables, k, *r.leased.rows[i], r.node)
	}
	for i, k := range r.journal.keys {
		queueJournal(b, k, *r.journal.rows[i], now)
	}
	for _, c := range r.counts {
		c.insert(b, r.tables.at(0, insertTallySQL), c.name, now)
	}
	for _, f := range r.fanOuts {
		queueFanOut(b, r.tables, f)
	}
	if len(r.removedVoters) > 0 {
		queueRemoveVoters(b, r.tables, r.removedVoters)
	}
	if len(r.outbox) > 0 {
		queueOutbox(b, r.tables, r.outbox, now)
	}
}

// column returns a value of each row.
func column[Row, V any](rows []Row, value func(*Row) V) pgtype.FlatArray[V] {
	all := make(pgtype.FlatArray[V], len(rows))
	for i := range rows {
		all[i] = value(&rows[i])
	}
	return all
}

// groups has rows by their common values.
type groups[K comparable, Row any] struct {
	keys []K
	rows []*[]Row
	at   map[K]int // of the keys, once there are many
}

// manyGroups is the number of groups from which on they are found by a map.
const manyGroups = 8

// add adds a row to its group. Mostly that is the latest.
func (g *groups[K, Row]) add(key K, row Row) {
	of := g.find(key)
	*of = append(*of, row)
}

func (g *groups[K, Row]) find(key K) *[]Row {
	if g.at == nil {
		for i := len(g.keys) - 1; i >= 0; i-- {
			if g.keys[i] == key {
				return g.rows[i]
			}
		}
	} else if i, ok := g.at[key]; ok {
		return g.rows[i]
	}
	g.keys, g.rows = append(g.keys, key), append(g.rows, new([]Row))
	switch {
	case g.at != nil:
		g.at[key] = len(g.keys) - 1
	case len(g.keys) == manyGroups:
		g.at = make(map[K]int)
		for i, k := range g.keys {
			g.at[k] = i
		}
	}
	return g.rows[len(g.rows)-1]
}
