package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// tokens has token rows to insert, as columns. Rows that a dispatcher may lease soon go to the
// ready table of the open roll, the others to wait.
type tokens struct {
	ready    groups[spot, readyRows]
	wait     waitRows
	earliest time.Time // least order_time in ready
	most     int       // the most rows that will come; 0: not known
}

// spot is a task's progress: the seq of its token row, its stage, and its attempt there.
type spot struct {
	seq     int16
	stage   string
	attempt int16
}

// readyRows and waitRows are rows as columns.
type readyRows struct {
	orders []time.Time
	ids    []int64
	// Flow keys, for types that need them, and since; nil: all are null.
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

// A token row's since is when its task came to its place in the order, if that is later than its
// order_time: the head start of a priority makes order_time earlier than the time when the task was
// due. In all other rows, and for head starts below leastHeadStart, it is null, which saves 8
// bytes.
const leastHeadStart = time.Second

// sinceOf returns the since of a row that came to its place at a time; nil: null.
func sinceOf(placed, order time.Time) *moment {
	if placed.Sub(order) < leastHeadStart {
		return nil
	}
	return (*moment)(&placed)
}

// placedAt returns when a task came to the place that a verdict on its lease gives it. That is now,
// except for a task that goes back unsent: it keeps its earlier time. A lease has only the
// order_time, so that placedAt subtracts the head start that is known to be in it.
func (t *Type) placedAt(l *asyncflow.Lease, v asyncflow.Verdict, now time.Time) time.Time {
	if v.Kind != asyncflow.Return && v.Kind != asyncflow.Park {
		return now
	}
	placed := v.OrderTime
	if l.Attempt == 1 { // retries have no head start
		placed = placed.Add(now.Sub(asyncflow.EnterOrder(t.TaskType, t.StageIndex(l.Stage), l.Options,
			now)))
	}
	if placed.After(now) { // the task was delayed: its priority didn't apply
		return now
	}
	return placed
}

// forever is the until of rows that don't wait for a time.
var forever = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}

// add places a task's next token row. key is its flow key ("": none is needed), placed when it came
// to its place, and now the database's time.
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
