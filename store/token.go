package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// tokens are token rows to be inserted, as columns: those that a dispatcher may
// lease soon go to the ready table of the open roll, the others to wait.
type tokens struct {
	ready, wait columns
	reasons     []string
	untils      []pgtype.Timestamptz
	earliest    time.Time // least order_time in ready
}

type columns struct {
	orders   []time.Time
	ids      []int64
	seqs     []int16
	stages   []string
	attempts []int16
	keys     []*string // flow keys, as far as they matter
	keyed    bool      // some are not nil
}

// forever is the until of what waits for something else than a time.
var forever = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}

// add places a task's next token row. key is its flow key, "" where it doesn't matter;
// now is the database's time.
func (ts *tokens) add(id int64, seq int, key string, v asyncflow.Verdict, now time.Time) {
	switch {
	case v.Kind == asyncflow.Park:
		ts.addWait(id, seq, key, v, forever)
	case v.Status(now) == asyncflow.StatusWaiting:
		ts.addWait(id, seq, key, v, pgtype.Timestamptz{Time: v.OrderTime, Valid: true})
	default:
		ts.ready.add(id, seq, key, v)
		if ts.earliest.IsZero() || v.OrderTime.Before(ts.earliest) {
			ts.earliest = v.OrderTime
		}
	}
}

func (ts *tokens) addWait(id int64, seq int, key string, v asyncflow.Verdict, until pgtype.Timestamptz) {
	ts.wait.add(id, seq, key, v)
	ts.reasons = append(ts.reasons, string(v.Reason))
	ts.untils = append(ts.untils, until)
}

func (c *columns) add(id int64, seq int, key string, v asyncflow.Verdict) {
	c.orders = append(c.orders, v.OrderTime)
	c.ids = append(c.ids, id)
	c.seqs = append(c.seqs, int16(seq))
	c.stages = append(c.stages, v.Stage)
	c.attempts = append(c.attempts, int16(v.Attempt))
	c.keys = append(c.keys, orNull(key))
	c.keyed = c.keyed || key != ""
}

// queue adds the inserts to a batch.
func (ts *tokens) queue(b *pgx.Batch, t *Type) {
	switch c := ts.ready; {
	case len(c.ids) == 0:
	case c.keyed:
		b.Queue(t.tables.at(t.End, insertKeyedReadySQL), c.orders, c.ids, c.seqs, c.stages, c.attempts, c.keys)
	default:
		b.Queue(t.tables.at(t.End, insertReadySQL), c.orders, c.ids, c.seqs, c.stages, c.attempts)
	}
	if c := ts.wait; len(c.ids) > 0 {
		b.Queue(t.tables.at(0, insertWaitSQL), c.orders, c.ids, c.seqs, c.stages, c.attempts, ts.reasons, ts.untils, c.keys)
	}
}
