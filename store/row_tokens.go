package store

import (
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
)

// tokens has token rows of a type to insert. Rows that a dispatcher may lease soon go to the ready
// table of the open roll, the others to wait.
type tokens struct {
	ready    []readyRow
	wait     []waitRow
	earliest time.Time // least order_time in ready
}

// readyKey has the values that rows of ready have in common.
type readyKey struct {
	rolled
	typed
	full bool // they have flow keys or a since
}

// readyRow is a row of a ready table.
type readyRow struct {
	spot
	order time.Time
	id    int64
	key   *string // the flow key, if the type needs it
	since *moment
}

// waitRow is a row of wait.
type waitRow struct {
	typed
	order  time.Time
	id     int64
	reason asyncflow.WaitReason
	key    *string
	until  pgtype.Timestamptz
	since  *moment
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

// forever is the until of rows that don't wait for a time.
var forever = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}

// untilOthers is the until of rows that wait for an event outside of their type's line: neither
// promotions nor leases take them.
var untilOthers = pgtype.Timestamptz{Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Valid: true}

// add places a task's next token row. key is its flow key ("": none is needed), placed when it came
// to its place, and now the database's time.
func (ts *tokens) add(id int64, seq int, key string, v asyncflow.Verdict, placed, now time.Time) {
	at := spot{int16(seq), v.Stage, int16(v.Attempt)}
	row := waitRow{typed{spot: at}, v.OrderTime, id, v.Reason, orNull(key), forever,
		sinceOf(placed, v.OrderTime)}
	switch {
	case v.Kind == asyncflow.Park || v.Kind == asyncflow.Spawn || v.Reason == asyncflow.WaitClaimer:
		if v.Reason.ForOthers() {
			row.until = untilOthers
		}
		if v.Reason == asyncflow.WaitClaimer {
			ts.lower(v.OrderTime)
		}
		ts.wait = append(ts.wait, row)
	case v.Status(now) == asyncflow.StatusWaiting:
		row.until, row.since = pgtype.Timestamptz{Time: v.OrderTime, Valid: true}, nil
		ts.wait = append(ts.wait, row)
	default:
		ts.ready = append(ts.ready, readyRow{at, row.order, id, row.key, row.since})
		ts.lower(v.OrderTime)
	}
}

// lower notes that there is an order_time in ready; zero: there is none.
func (ts *tokens) lower(order time.Time) {
	if ts.earliest.IsZero() || order.Before(ts.earliest) && !order.IsZero() {
		ts.earliest = order
	}
}

// empty reports whether there are no rows.
func (ts *tokens) empty() bool { return len(ts.ready)+len(ts.wait) == 0 }

// readied returns how many rows go to the ready table.
func (ts *tokens) readied() int { return len(ts.ready) }

// queue adds the inserts to a batch.
func (ts *tokens) queue(b *pgx.Batch, t *Type) {
	var all rows
	all.addTokens(t, ts)
	all.queue(b, time.Time{})
}

// queueReady adds the insert of ready rows to a batch.
func queueReady(b *pgx.Batch, k readyKey, rows []readyRow) {
	common := []any{k.seq, k.stage, k.attempt, k.number}
	if len(rows) == 1 {
		r := rows[0]
		b.Queue(k.tables.at(k.position, insertOneReadySQL),
			append(append([]any{r.order, r.id}, common...), r.key, r.since)...)
		return
	}
	sql := insertReadySQL
	args := append([]any{
		moments(column(rows, func(r *readyRow) *moment { return (*moment)(&r.order) })),
		column(rows, func(r *readyRow) int64 { return r.id })}, common...)
	if k.full {
		sql = insertFullReadySQL
		args = append(args, texts(column(rows, func(r *readyRow) *string { return r.key })),
			moments(column(rows, func(r *readyRow) *moment { return r.since })))
	}
	b.Queue(k.tables.at(k.position, sql), args...)
}

// queueWait adds the insert of waiting rows to a batch.
func queueWait(b *pgx.Batch, t *tables, rows []waitRow) {
	b.Queue(t.at(0, insertWaitSQL),
		moments(column(rows, func(r *waitRow) *moment { return (*moment)(&r.order) })),
		column(rows, func(r *waitRow) int64 { return r.id }),
		column(rows, func(r *waitRow) int16 { return r.seq }),
		column(rows, func(r *waitRow) string { return r.stage }),
		column(rows, func(r *waitRow) int16 { return r.attempt }),
		column(rows, func(r *waitRow) string { return string(r.reason) }),
		column(rows, func(r *waitRow) pgtype.Timestamptz { return r.until }),
		texts(column(rows, func(r *waitRow) *string { return r.key })),
		moments(column(rows, func(r *waitRow) *moment { return r.since })),
		column(rows, func(r *waitRow) int32 { return r.number }))
}

// forClaims returns the row of a task in line that waits for a claimer.
func (r readyRow) forClaims(t *Type) waitRow {
	return waitRow{typed{t.number, r.spot}, r.order, r.id, asyncflow.WaitClaimer, r.key, forever, r.since}
}
