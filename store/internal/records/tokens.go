package records

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Tokens has token rows of a type to insert. Rows that a dispatcher may lease soon go to the ready
// table of the open roll, all other rows to `wait`.
type Tokens struct {
	ready    []ReadyRow
	Wait     []waitRow
	Earliest time.Time // least order_time in ready
}

// ReadyKey has the values that rows of ready have in common.
type ReadyKey struct {
	RollTables
	TypeToken
	Keyed bool // they have flow keys or a since
}

// ReadyRow is a row of a ready table.
type ReadyRow struct {
	Token
	Order time.Time
	ID    int64
	Key   *string // the flow key, if the type needs it
	Since *postgres.Moment
}

// waitRow is a row of wait.
type waitRow struct {
	TypeToken
	order  time.Time
	id     int64
	reason asyncflow.WaitReason
	key    *string
	until  pgtype.Timestamptz
	since  *postgres.Moment
	rules  *string // who may claim it: see asyncflow.ClaimRules; nil: null
}

// A token row's since is when its task came to its place in the order, if that is later than its
// order_time: the head start of a priority makes order_time earlier than the time when the task was
// due. In all other rows, and for head starts below leastHeadStart, it is null, which saves 8
// bytes.
const leastHeadStart = time.Second

// sinceOf returns the since of a row that came to its place at a time; nil: null.
func sinceOf(placed, order time.Time) *postgres.Moment {
	if placed.Sub(order) < leastHeadStart {
		return nil
	}
	return (*postgres.Moment)(&placed)
}

// forever is the until of rows that don't wait for a time.
var forever = pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}

// UntilOthers is the until of rows that wait for an event outside of their type's line: neither
// promotions nor leases take them.
var UntilOthers = pgtype.Timestamptz{Time: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), Valid: true}

// Add places a task's next token row. key is its flow key ("": none is needed), placed when it came
// to its place, and now the database's time.
func (ts *Tokens) Add(id int64, seq int, key string, v asyncflow.Verdict, placed, now time.Time) {
	at := Token{int16(seq), v.Stage, int16(v.Attempt)}
	row := waitRow{TypeToken{Token: at}, v.OrderTime, id, v.Reason, postgres.OrNull(key), forever,
		sinceOf(placed, v.OrderTime), nil}
	switch {
	case v.Kind == asyncflow.Park || v.Kind == asyncflow.Spawn || v.Reason == asyncflow.WaitClaimer:
		if v.Reason.ForOthers() {
			row.until = UntilOthers
		}
		if v.Reason == asyncflow.WaitClaimer {
			ts.Lower(v.OrderTime)
			row.rules = v.Claim.Stored()
		}
		ts.Wait = append(ts.Wait, row)
	case v.Status(now) == asyncflow.StatusWaiting:
		row.until = pgtype.Timestamptz{Time: v.OrderTime, Valid: true}
		row.since = nil
		ts.Wait = append(ts.Wait, row)
	default:
		ts.ready = append(ts.ready, ReadyRow{at, row.order, id, row.key, row.since})
		ts.Lower(v.OrderTime)
	}
}

// AddRows adds the next token row of each task that a statement took from `wait`. A row has the
// task's id, seq, stage, attempt, order_time and flow key, and when it came to its place.
func (ts *Tokens) AddRows(rows pgx.Rows, kind asyncflow.VerdictKind, now time.Time) error {
	var id int64
	var seq int
	var key string
	var placed time.Time
	v := asyncflow.Verdict{Kind: kind}
	into := []any{&id, &seq, &v.Stage, &v.Attempt, &v.OrderTime, &key, &placed}
	_, err := pgx.ForEachRow(rows, into, func() error {
		ts.Add(id, seq, key, v, placed, now)
		return nil
	})
	return err
}

// Lower notes that there is an order_time in ready; zero: there is none.
func (ts *Tokens) Lower(order time.Time) {
	if ts.Earliest.IsZero() || order.Before(ts.Earliest) && !order.IsZero() {
		ts.Earliest = order
	}
}

// Empty reports whether there are no rows.
func (ts *Tokens) Empty() bool { return len(ts.ready)+len(ts.Wait) == 0 }

// Readied returns how many rows go to the ready table.
func (ts *Tokens) Readied() int { return len(ts.ready) }

// Queue adds the inserts to a batch.
func (ts *Tokens) Queue(b *pgx.Batch, t *config.Type) {
	var all Inserts
	all.AddTokens(t, ts)
	all.Queue(b, time.Time{})
}

// queueReady adds the insert of ready rows to a batch.
func queueReady(b *pgx.Batch, k ReadyKey, rows []ReadyRow) {
	common := []any{k.Seq, k.Stage, k.Attempt, k.Number}
	if len(rows) == 1 {
		r := rows[0]
		b.Queue(k.Tables.SQL(k.Position, insertOneReadySQL),
			append(append([]any{r.Order, r.ID}, common...), r.Key, r.Since)...)
		return
	}
	sql := insertReadySQL
	args := append([]any{
		postgres.Moments(Column(rows,
			func(r *ReadyRow) *postgres.Moment { return (*postgres.Moment)(&r.Order) })),
		Column(rows, func(r *ReadyRow) int64 { return r.ID })}, common...)
	if k.Keyed {
		sql = insertFullReadySQL
		args = append(args, postgres.Texts(Column(rows, func(r *ReadyRow) *string {
			return r.Key
		})),
			postgres.Moments(Column(rows, func(r *ReadyRow) *postgres.Moment { return r.Since })))
	}
	b.Queue(k.Tables.SQL(k.Position, sql), args...)
}

// queueWait adds the insert of waiting rows to a batch.
func queueWait(b *pgx.Batch, t *config.TableNames, rows []waitRow) {
	sql, args := insertWaitSQL, []any{
		postgres.Moments(Column(rows,
			func(r *waitRow) *postgres.Moment { return (*postgres.Moment)(&r.order) })),
		Column(rows, func(r *waitRow) int64 { return r.id }),
		Column(rows, func(r *waitRow) int16 { return r.Seq }),
		Column(rows, func(r *waitRow) string { return r.Stage }),
		Column(rows, func(r *waitRow) int16 { return r.Attempt }),
		Column(rows, func(r *waitRow) string { return string(r.reason) }),
		Column(rows, func(r *waitRow) pgtype.Timestamptz { return r.until }),
		postgres.Texts(Column(rows, func(r *waitRow) *string { return r.key })),
		postgres.Moments(Column(rows, func(r *waitRow) *postgres.Moment { return r.since })),
		Column(rows, func(r *waitRow) int32 { return r.Number })}
	if slices.ContainsFunc(rows, func(r waitRow) bool { return r.rules != nil }) {
		sql = insertRuledWaitSQL
		args = append(args, postgres.Texts(Column(rows,
			func(r *waitRow) *string { return r.rules })))
	}
	b.Queue(t.SQL(0, sql), args...)
}

// forClaims returns the row of a task in line that waits for a claimer.
func (r ReadyRow) forClaims(t *config.Type) waitRow {
	return waitRow{TypeToken{t.Number(), r.Token}, r.Order, r.ID, asyncflow.WaitClaimer, r.Key,
		forever, r.Since, nil}
}
