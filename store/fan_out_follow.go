package store

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// spawnBytes is how many bytes the children have that one transaction makes.
const spawnBytes = 1 << 20

// followTrees handles rows about fan-outs, sorted by fan-out. The rows of fan_outs are locked in
// that order.
func (f *followUp) followTrees(rows []outboxRow) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].fanOutKey() == rows[0].fanOutKey() {
			n++
		}
		t, err := f.typeNow(f.types[rows[0].number], rows[0].number)
		if err == nil && t != nil { // else it was deleted
			err = f.followTree(t, rows[:n])
		}
		if err != nil {
			return fmt.Errorf("fan-out %d of task %d: %w", rows[0].fanOut, rows[0].id, err)
		}
		rows = rows[n:]
	}
	return nil
}

func (r outboxRow) fanOutKey() fanOutKey { return fanOutKey{r.number, r.id, r.fanOut} }

// followTree handles the rows about one fan-out.
func (f *followUp) followTree(t *Type, rows []outboxRow) error {
	o, err := latestFanOut(f.ctx, f.tx, t, rows[0].id, int(rows[0].fanOut), "FOR UPDATE")
	if err != nil || o == nil {
		return err
	}
	f.of(t).changed = append(f.of(t).changed, o.id)
	pauseAt := o.spawned
	for _, r := range rows {
		o.ended.add(r.ended)
		if r.kind == outboxPause {
			pauseAt = min(pauseAt, r.at)
		}
	}
	stopAt, err := f.stops(t, o, rows)
	if err != nil {
		return err
	}
	bad := o.ended.failed + o.ended.cancelled
	if !o.stopped && o.again == nil && o.rule.OnChildFailure.TooMany(bad, o.count) {
		o.stopped, stopAt = true, 0
	}
	if o.stopped {
		o.again = nil
	}
	switch {
	case stopAt >= 0:
		err = f.stop(t, o, stopAt)
	case o.stopped || o.closed:
	case pauseAt < o.spawned:
		err = f.pause(t, o, pauseAt)
	case o.paused():
	case o.again != nil:
		err = f.redriveChildren(t, o)
	default:
		err = f.spawn(t, o)
	}
	if err == nil && o.settledAll() && !o.closed {
		err = f.join(t, o)
	}
	if err != nil {
		return err
	}
	return o.save(f.ctx, f.tx, t)
}

// stops stops a fan-out if a row says so, and returns the index from which on its children are to be
// cancelled; -1: none are. The row may be older than a redrive of the task, which waits for its
// children again.
func (f *followUp) stops(t *Type, o *fanOut, rows []outboxRow) (at int, err error) {
	at = -1
	for _, r := range rows {
		if r.kind == outboxStop && (at < 0 || r.at < at) {
			at = r.at
		}
	}
	if at < 0 || o.stopped || o.closed {
		return at, nil
	}
	var waits bool
	err = f.tx.QueryRow(f.ctx, t.at(0, `SELECT EXISTS (SELECT FROM {wait}
		WHERE type = $1 AND id = $2 AND seq = $3 AND reason = 'children')`), o.number, o.id, o.waits).
		Scan(&waits)
	if waits {
		return -1, err
	}
	o.stopped = true
	return at, err
}

// stop cancels children from an index on.
func (f *followUp) stop(t *Type, o *fanOut, from int) error {
	reason := "its siblings have failed, or its parent has ended"
	for _, r := range o.runs(from, from+f.s.chunks.stop) {
		settled, err := cancelAll(f.ctx, f.tx, t, r.ids(), reason, f.now)
		if err != nil {
			return err
		}
		of := f.of(t)
		of.written = append(of.written, settled...)
	}
	if from += f.s.chunks.stop; from < o.spawned {
		f.outbox = append(f.outbox, outboxRow{kind: outboxStop, number: o.number, id: o.id,
			fanOut: o.seq, at: from})
	}
	return nil
}

// redriveChildren redrives the next of the children that failed or were cancelled, as many as may
// run at once. The end of a child goes on there.
func (f *followUp) redriveChildren(t *Type, o *fanOut) error {
	if err := o.save(f.ctx, f.tx, t); err != nil {
		return err
	}
	from, room := *o.again, o.room()
	to := min(from+f.s.chunks.stop, o.spawned)
	for _, r := range o.runs(from, to) {
		ended, _, err := endsOf(f.ctx, f.tx, t, r.ids())
		if err != nil {
			return err
		}
		full := len(ended) > room
		if full {
			to = r.index + int(ended[room].ID.Number-r.first)
			ended = ended[:room]
		}
		if err := f.redriveEnded(t, ended); err != nil {
			return err
		}
		if room -= len(ended); full {
			break
		}
	}
	now, err := latestFanOut(f.ctx, f.tx, t, o.id, int(o.seq), "FOR UPDATE")
	if err != nil {
		return err
	}
	*o = *now
	if o.again = &to; to == o.spawned {
		o.again = nil
	}
	if o.again == nil || to > from {
		f.spawnLater(o)
	}
	return nil
}

func (f *followUp) redriveEnded(t *Type, ended []end) error {
	if len(ended) == 0 {
		return nil
	}
	ids := column(ended, func(e *end) int64 { return e.ID.Number })
	ts := &tokens{}
	done, _, err := redriveAll(f.ctx, f.tx, t, ids, Redrive{}, ts, f.now)
	of := f.of(t)
	of.changed = append(of.changed, done...)
	of.tokens.lower(ts.earliest)
	return err
}

func (f *followUp) spawnLater(o *fanOut) {
	f.outbox = append(f.outbox, outboxRow{kind: outboxSpawn, number: o.number, id: o.id,
		fanOut: o.seq})
}

// join ends the wait of the task for its children. The transaction that deletes its row in wait has
// won; if there is none, the task was cancelled.
func (f *followUp) join(t *Type, o *fanOut) error {
	o.closed = true
	l := asyncflow.Lease{ID: asyncflow.TaskID{Type: t.Name, Number: o.id}, Seq: int(o.waits)}
	err := f.tx.QueryRow(f.ctx, t.at(0, `DELETE FROM {wait}
		WHERE type = $1 AND id = $2 AND seq = $3 AND reason = 'children'
		RETURNING stage, attempt, order_time`), o.number, o.id, o.waits).
		Scan(&l.Stage, &l.Attempt, &l.OrderTime)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	leases := []asyncflow.Lease{l}
	if err := readOptions(f.ctx, f.tx, t, leases); err != nil {
		return err
	}
	joined := asyncflow.Outcome{Kind: asyncflow.OutcomeJoined}
	if o.stopped {
		joined.Error = fmt.Sprintf("of %d children, %d failed and %d were cancelled", o.count,
			o.ended.failed, o.ended.cancelled+o.count-o.spawned)
	} else if joined.Output, err = f.results(t, o); err != nil {
		return err
	}
	f.settle(t, asyncflow.Settlement{Lease: leases[0], Outcome: joined,
		Verdict: asyncflow.Decide(t.TaskType, leases[0], joined, f.now)})
	return nil
}
