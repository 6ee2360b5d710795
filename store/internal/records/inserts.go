package records

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Inserts are the rows that a transaction inserts for task types of one tenant. Rows with the same
// common values are inserted by one statement, which has these once, and only the other values as
// arrays: Postgres unnests each array by itself (22 µs for one row by nine of them, 6 µs by one).
type Inserts struct {
	Node          string
	Ready         groups[ReadyKey, ReadyRow]
	journal       groups[journalKey, journalRow]
	leased        groups[leaseKey, leaseRow]
	waiting       []waitRow
	counts        []tallyRow
	fanOuts       []fanOutRow
	signalWaits   []signalWait
	spawns        []spawnRow
	lifetimes     []LifetimeRow
	Outbox        []OutboxRow
	removedVoters []VoteRow
	// children are the places in outbox of the children of each fan-out.
	children map[FanOutKey]int
	Tables   *config.TableNames // of any of the sets
}

// RollTables names the tables of a roll.
type RollTables struct {
	Tables   *config.TableNames
	Position int
}

// Token is a task's progress: the seq of its token row, its stage, and its attempt there.
type Token struct {
	Seq     int16
	Stage   string
	Attempt int16
}

// TypeToken is the progress of a task of a type.
type TypeToken struct {
	Number int32
	Token
}

// AddTokens adds token rows of tasks of a type.
func (r *Inserts) AddTokens(t *config.Type, ts *Tokens) {
	r.Tables = t.Set().Tables
	fair := t.Fair()
	for _, row := range ts.ready {
		row.Key = turnKey(row.Key, fair)
		if config.InLineForClaims(t, row.Stage) {
			r.waiting = append(r.waiting, row.forClaims(t))
			continue
		}
		key := ReadyKey{RollTables{t.Set().Tables, t.End}, TypeToken{t.Number(), row.Token},
			row.Key != nil || row.Since != nil}
		r.Ready.Add(key, row)
	}
	for _, row := range ts.Wait {
		row.Number = t.Number()
		row.key = turnKey(row.key, fair && row.until == forever)
		r.waiting = append(r.waiting, row)
	}
}

// noKey is the flow key in rows of fair types for tasks without one: they take turns, too.
var noKey = ""

// turnKey returns the key by which a task takes turns.
func turnKey(key *string, fair bool) *string {
	if key == nil && fair {
		return &noKey
	}
	return key
}

// AddJournal adds the journal row of a settlement of a type.
func (r *Inserts) AddJournal(t *config.Type, settled *asyncflow.Settlement) {
	r.Tables = t.Set().Tables
	settled.Outcome = settled.Counted()
	r.journal.Add(newJournalRow(t, settled, r.Node))
	r.addLifetime(t, settled)
}

// AddLeases adds leases of tasks of a type. keys are their flow keys; nil: none.
func (r *Inserts) AddLeases(t *config.Type, leases []*asyncflow.Lease, keys postgres.Texts) {
	r.Tables = t.Set().Tables
	for i, l := range leases {
		row := leaseRow{id: l.ID.Number}
		if keys != nil {
			row.key = keys[i]
		}
		r.leased.Add(leaseKey{TypeToken{t.Number(), Token{int16(l.Seq), l.Stage, int16(l.Attempt)}},
			l.LeasedAt, l.Until, l.Endpoint, row.key != nil, l.Unsent}, row)
	}
}

// AddTally adds the counts of a type, unless there is nothing to count.
func (r *Inserts) AddTally(t *config.Type, c Tally) {
	r.Tables = t.Set().Tables
	if c != (Tally{}) {
		r.counts = append(r.counts, tallyRow{t.Name, c})
	}
}

// Queue adds the inserts to a batch.
func (r *Inserts) Queue(b *pgx.Batch, now time.Time) {
	for i, k := range r.Ready.keys {
		queueReady(b, k, *r.Ready.rows[i])
	}
	if len(r.waiting) > 0 {
		queueWait(b, r.Tables, r.waiting)
	}
	for i, k := range r.leased.keys {
		queueLeases(b, r.Tables, k, *r.leased.rows[i], r.Node)
	}
	for i, k := range r.journal.keys {
		queueJournal(b, k, *r.journal.rows[i], now)
	}
	for _, c := range r.counts {
		c.Insert(b, r.Tables.SQL(0, InsertTallySQL), c.name, now)
		c.queueExpired(b, r.Tables)
	}
	for _, f := range r.fanOuts {
		queueFanOut(b, r.Tables, f)
	}
	for _, w := range r.signalWaits {
		queueSignalWait(b, r.Tables, w, now)
	}
	for _, s := range r.spawns {
		queueSpawn(b, r.Tables, s)
	}
	if len(r.lifetimes) > 0 {
		QueueLifetimes(b, r.Tables, r.lifetimes, now)
	}
	if len(r.removedVoters) > 0 {
		queueRemoveVoters(b, r.Tables, r.removedVoters)
	}
	if len(r.Outbox) > 0 {
		QueueOutbox(b, r.Tables, r.Outbox, now)
	}
}

// Column returns a value of each row.
func Column[Row, V any](rows []Row, value func(*Row) V) pgtype.FlatArray[V] {
	all := make(pgtype.FlatArray[V], len(rows))
	for i := range rows {
		all[i] = value(&rows[i])
	}
	return all
}

// groups has rows by their common values.
type groups[K comparable, Row any] struct {
	keys  []K
	rows  []*[]Row
	index map[K]int // of the keys, once there are many
}

// manyGroups is the number of groups from which on they are found by a map.
const manyGroups = 8

// Add adds a row to its group. Mostly that is the latest.
func (g *groups[K, Row]) Add(key K, row Row) {
	of := g.find(key)
	*of = append(*of, row)
}

func (g *groups[K, Row]) find(key K) *[]Row {
	if g.index == nil {
		for i := len(g.keys) - 1; i >= 0; i-- {
			if g.keys[i] == key {
				return g.rows[i]
			}
		}
	} else if i, ok := g.index[key]; ok {
		return g.rows[i]
	}
	g.keys = append(g.keys, key)
	g.rows = append(g.rows, new([]Row))
	switch {
	case g.index != nil:
		g.index[key] = len(g.keys) - 1
	case len(g.keys) == manyGroups:
		g.index = make(map[K]int)
		for i, k := range g.keys {
			g.index[k] = i
		}
	}
	return g.rows[len(g.rows)-1]
}
