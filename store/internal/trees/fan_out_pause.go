package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// A paused fan-out makes no children. FollowUp moves its children from `ready` to `wait`, and back
// after the pause. Children that become ready meanwhile, such as retries, are moved by the node
// that leases them: see ParkHalted.

// WaitingFanOut locks the fan-out of a task that waits for its children.
func WaitingFanOut(
	ctx context.Context, tx pgx.Tx, t *config.Type, id asyncflow.TaskID,
) (*records.FanOut, error) {
	o, err := records.LatestFanOut(ctx, tx, t, id.Number, 0, "FOR UPDATE")
	if err != nil {
		return nil, err
	}
	waits := false
	if o != nil && !o.Stopped && !o.Closed {
		err = tx.QueryRow(ctx, t.SQL(0, `SELECT EXISTS (SELECT FROM {wait}
			WHERE type = $1 AND id = $2 AND seq = $3 AND reason = 'children')`), o.Number, o.ID,
			o.Waits).
			Scan(&waits)
	}
	if err == nil && !waits {
		err = asyncflow.Errorf(asyncflow.CodeConflict, "task %s doesn't wait for children", id)
	}
	return o, err
}

// pause moves children from an index on: from `ready` to `wait` if their parent is paused, and back
// if it isn't. Then the remaining children are made.
func (f fanOutFollowUp) pause(t *config.Type, o *records.FanOut, from int) error {
	move := f.resume
	if o.Paused() {
		move = f.park
	}
	n := f.chunk(o, from)
	if err := f.eachRun(t, o, from, from+n, move); err != nil {
		return err
	}
	if from += n; from < o.Spawned {
		f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxPause, Number: o.Number,
			ID: o.ID, FanOut: o.Seq, At: from})
	} else if !o.Paused() {
		f.followLater(o)
	}
	return nil
}

// park moves the children of a run from `ready` to `wait`. A child there that a limit blocks waits
// for its parent from then on.
func (f fanOutFollowUp) park(t *config.Type, r records.ChildRun) error {
	_, err := f.tx.Exec(f.ctx, t.SQL(0, `UPDATE {wait} SET reason = 'parent_paused', until = $4
		WHERE type = $1 AND id BETWEEN $2 AND $3 AND until = 'infinity' AND reason <> 'flow_key'`),
		t.Number(), r.First,
		r.Last(), records.UntilOthers)
	if err != nil {
		return err
	}
	orders, ids, err := records.ReadyPlaces(f.ctx, f.tx, t, r.IDs())
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	for _, p := range t.Live() {
		records.QueueTake(b, func(rows pgx.Rows) error {
			return f.moved(t, rows, r.Type == 0, func(int) asyncflow.Verdict {
				return asyncflow.Verdict{Kind: asyncflow.Park, Reason: asyncflow.WaitParent}
			})
		}, t.SQL(p, ParkReadySQL), orders, ids, t.Number())
	}
	return f.tx.SendBatch(f.ctx, b).Close()
}

// resume moves the children of a run back that waited for the end of a pause, and leaves what they
// wait for themselves to later transactions: a pause keeps all levels below from beginning.
func (f fanOutFollowUp) resume(t *config.Type, r records.ChildRun) error {
	if err := f.unpark(t, r); err != nil {
		return err
	}
	// Their type may no longer fan out or start tasks, as it did.
	rows, _ := f.tx.Query(f.ctx, t.SQL(0, `SELECT id, seq FROM {fan_outs}
		WHERE type = $1 AND id BETWEEN $2 AND $3 AND NOT closed AND NOT stopped AND spawned > 0`),
		t.Number(), r.First, r.Last())
	below := records.OutboxRow{Kind: records.OutboxPause, Number: t.Number()}
	_, err := pgx.ForEachRow(rows, []any{&below.ID, &below.FanOut}, func() error {
		f.outbox = append(f.outbox, below)
		return nil
	})
	return err
}

// unpark moves the children of a run back that waited for the end of a pause.
func (f fanOutFollowUp) unpark(t *config.Type, r records.ChildRun) error {
	rows, err := f.tx.Query(f.ctx, t.SQL(0, unparkSQL), t.Number(), r.First, r.Last())
	if err != nil {
		return err
	}
	return f.moved(t, rows, r.Type == 0, func(attempt int) asyncflow.Verdict {
		if attempt > 1 {
			return asyncflow.Verdict{Kind: asyncflow.Retry, Reason: asyncflow.WaitRetry}
		}
		return asyncflow.Verdict{Kind: asyncflow.Retry, Reason: asyncflow.WaitDelay}
	})
}

// moved inserts the next token rows of tasks after their deletion. parts reports whether they pass
// a stage for their parent. verdict returns the kind and the reason, by the attempt.
func (f fanOutFollowUp) moved(
	t *config.Type, rows pgx.Rows, parts bool, verdict func(attempt int) asyncflow.Verdict,
) error {
	var id int64
	var seq, attempt int
	var stage, key string
	var order, since time.Time
	changes := f.changesOf(t)
	columns := []any{&id, &seq, &stage, &attempt, &order, &since, &key}
	_, err := pgx.ForEachRow(rows, columns, func() error {
		v := verdict(attempt)
		v.Stage = stage
		v.Attempt = attempt
		v.OrderTime = order
		if v.Kind == asyncflow.Retry && t.LineForClaims(stage, parts) {
			v.Reason = asyncflow.WaitClaimer
		}
		changes.tokens.Add(id, seq, key, v, since, f.now)
		changes.changed = append(changes.changed, id)
		return nil
	})
	return err
}

const (
	// ParkReadySQL has the form of records.TakeAnyReadySQL.
	ParkReadySQL = `
DELETE FROM {ready} k WHERE ctid = ANY (ARRAY(
  SELECT r.t FROM unnest($1::timestamptz[], $2::bigint[]) AS u (order_time, id), LATERAL (
    SELECT ctid AS t FROM {ready} WHERE type = $3
      AND order_time = u.order_time AND id BETWEEN u.id AND u.id
    ORDER BY id LIMIT 1 FOR UPDATE) r))
RETURNING k.id, k.seq, k.stage, k.attempt, k.order_time, coalesce(k.since, k.order_time),
  coalesce(k.key, '')`
	unparkSQL = `
DELETE FROM {wait} WHERE type = $1 AND id BETWEEN $2 AND $3 AND reason = 'parent_paused'
RETURNING id, seq, stage, attempt, order_time, coalesce(since, order_time), coalesce(key, '')`
)
