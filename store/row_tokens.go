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
	ready    groups[spot, readyRows]
	wait     waitRows
	earliest time.Time // least order_time in ready
	most     int       // how many there will be at most; 0: it isn't known
}

// spot is where a task stands on its way: the number of the attempt in all, its stage, and
// its number there.
type spot struct {
	seq     int16
	stage   string
	attempt int16
}

// readyRows and waitRows are rows as columns.
type readyRows struct {
	orders []time.Time
	ids    []int64
	// Flow keys, as far as they matter, and since; nil: all are null.
	keys   texts
	sinces moments
}

type waitRows struct {
	orders   []time.Time
	ids      []int64
	seqs     []int16
	stages   []string
	attempts []int16
	keys     texts
	reasons  []string
	untils   []pgtype.Timestamptz
	sinces   moments
}

// A token row's since is when its task got to its place, where that is later than its
// order_time: a head start by priority makes order_time earlier than a task was due. It is
// null in all other rows, where it would say nothing and cost 8 bytes: those whose head
// start is less than leastHeadStart, too.
const leastHeadStart = time.Second

// sinceOf returns the since of a row that got to its place at a time; nil: null.
func sinceOf(placed, order time.Time) *moment {
	if placed.Sub(order) < leastHeadStart {
		return nil
	}
	return (*moment)(&placed)
}

// placedAt returns when a task got to the place that a verdict on its lease gives it: now,
// but where it goes back unsent, when it got there before. For that a lease has only the
// order_time, and so what is known of the head start that is in it.
func (t *Type) placedAt(l *asyncflow.Lease, v asyncflow.Verdict, now time.Time) time.Time {
	if v.Kind != asyncflow.Return && v.Kind != asyncflow.Park {
		return now
	}
	placed := v.OrderTime
	if l.Attempt == 1 { // retries have no head start
		placed = placed.Add(now.Sub(asyncflow.EnterOrder(t.TaskType, t.StageIndex(l.Stage), l.Options,
			now)))
	}
	if placed.After(now) { // it was delayed: its priority didn't apply
		return now
	}
	return placed
}

// forever is the until of what waits for something else than a time.
var forever = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}

// add places a task's next token row. key is its flow key, "" where it doesn't matter;
// placed is when it got there, and now the database's time.
func (ts *tokens) add(id int64, seq int, key string, v asyncflow.Verdict, placed, now time.Time) {
	since := sinceOf(placed, v.OrderTime)
	switch {
	case v.Kind == asyncflow.Park:
		ts.wait.add(id, seq, key, v, forever, since)
	case v.Status(now) == asyncflow.StatusWaiting:
		ts.wait.add(id, seq, key, v, pgtype.Timestamptz{Time: v.OrderTime, Valid: true}, nil)
	default:
		r := ts.ready.of(spot{int16(seq), v.Stage, int16(v.Attempt)})
		if r.ids == nil {
			r.orders, r.ids = make([]time.Time, 0, ts.most), make([]int64, 0, ts.most)
		}
		if (key != "" || since != nil) && r.keys == nil {
			r.keys, r.sinces = make(texts, len(r.ids)), make(moments, len(r.ids))
		}
		if r.keys != nil {
			r.keys, r.sinces = append(r.keys, orNull(key)), append(r.sinces, since)
		}
		r.orders = append(r.orders, v.OrderTime)
		r.ids = append(r.ids, id)
		if ts.earliest.IsZero() || v.OrderTime.Before(ts.earliest) {
			ts.earliest = v.OrderTime
		}
	}
}

func (r *waitRows) add(
	id int64, seq int, key string, v asyncflow.Verdict, until pgtype.Timestamptz, since *moment,
) {
	r.orders = append(r.orders, v.OrderTime)
	r.ids = append(r.ids, id)
	r.seqs = append(r.seqs, int16(seq))
	r.stages = append(r.stages, v.Stage)
	r.attempts = append(r.attempts, int16(v.Attempt))
	r.keys = append(r.keys, orNull(key))
	r.reasons = append(r.reasons, string(v.Reason))
	r.untils = append(r.untils, until)
	r.sinces = append(r.sinces, since)
}

// readied returns how many rows go to the ready table.
func (ts *tokens) readied() (n int) {
	for _, r := range ts.ready.rows {
		n += len(r.ids)
	}
	return n
}

// queue adds the inserts to a batch.
func (ts *tokens) queue(b *pgx.Batch, t *Type) {
	for i, k := range ts.ready.keys {
		r := ts.ready.rows[i]
		sql, args := insertReadySQL, []any{momentsOf(r.orders), r.ids, k.seq, k.stage, k.attempt}
		if r.keys != nil {
			sql, args = insertFullReadySQL, append(args, r.keys, r.sinces)
		}
		b.Queue(t.tables.at(t.End, sql), args...)
	}
	if r := &ts.wait; len(r.ids) > 0 {
		b.Queue(t.tables.at(0, insertWaitSQL), momentsOf(r.orders), r.ids, r.seqs, r.stages, r.attempts,
			r.reasons, r.untils, r.keys, r.sinces)
	}
}
