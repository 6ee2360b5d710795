package store

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// treeGroup is how many fan-outs one round trip makes children of, and how many it joins: each may
// have a context of MaxInlineResults bytes.
const treeGroup = 16

// followTrees handles rows about fan-outs, sorted by fan-out. The rows of fan_outs are locked in
// that order.
func (f *followUp) followTrees(rows []outboxRow) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].number == rows[0].number {
			n++
		}
		t, err := f.types[rows[0].number], error(nil)
		if t == nil { // a known one is read again before its tasks are moved
			t, err = f.typeNow(t, rows[0].number)
		}
		if err == nil && t != nil { // else it was deleted
			err = f.followTreesOf(t, rows[:n])
		}
		if err != nil {
			return err
		}
		rows = rows[n:]
	}
	return nil
}

// followTreesOf handles rows about fan-outs of tasks of one type.
func (f *followUp) followTreesOf(t *Type, rows []outboxRow) error {
	all, err := f.lockFanOuts(t, rows)
	if err != nil {
		return err
	}
	if err := f.readTallies(t, all); err != nil {
		return err
	}
	byKey := map[fanOutKey][]outboxRow{}
	for _, r := range rows {
		byKey[r.fanOutKey()] = append(byKey[r.fanOutKey()], r)
	}
	var spawning, joining []*fanOut
	for _, o := range all {
		more, err := f.followTree(t, o, byKey[o.fanOutKey])
		if err != nil {
			return fmt.Errorf("fan-out %d of task %d: %w", o.seq, o.id, err)
		}
		switch {
		case more:
			spawning = append(spawning, o)
		case o.settledAll() && !o.closed:
			joining = append(joining, o)
		}
	}
	for len(spawning) > 0 || len(joining) > 0 {
		n, m := min(treeGroup, len(spawning)), min(treeGroup, len(joining))
		if err := f.advance(t, spawning[:n], joining[:m]); err != nil {
			return err
		}
		spawning, joining = spawning[n:], joining[m:]
	}
	queueSaves(&f.last, t, all)
	return nil
}

// advance makes the next children of some tasks, and has others go on whose children have ended.
func (f *followUp) advance(t *Type, spawning, joining []*fanOut) error {
	b := &pgx.Batch{}
	onNewest := queueNewest(b, t)
	s, j := f.queueSpawn(b, t, spawning), f.queueJoin(b, t, joining)
	err := f.tx.SendBatch(f.ctx, b).Close()
	if err == nil {
		err = onNewest()
	}
	if err == nil {
		err = s.spawn()
	}
	if err != nil {
		return err
	}
	j.join()
	return nil
}

// lockFanOuts returns the fan-outs that rows are about. It waits for those that were locked.
func (f *followUp) lockFanOuts(t *Type, rows []outboxRow) (all []*fanOut, err error) {
	for _, r := range rows {
		if n := len(all); n > 0 && all[n-1].fanOutKey == r.fanOutKey() {
			continue
		}
		if r.locked == nil {
			r.locked, err = latestFanOut(f.ctx, f.tx, t, r.id, int(r.fanOut), "FOR UPDATE")
		}
		if err != nil {
			return nil, err
		}
		if r.locked != nil {
			all = append(all, r.locked)
		}
	}
	return all, nil
}

// followTree handles the rows about one fan-out, but for a join. It reports whether more children
// are to be made.
func (f *followUp) followTree(t *Type, o *fanOut, rows []outboxRow) (more bool, err error) {
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
		return false, err
	}
	if !o.stopped && o.again == nil && o.failed() {
		o.stopped, stopAt = true, 0
	}
	if o.stopped {
		o.again = nil
	}
	var move func(t *Type) error
	switch {
	case stopAt >= 0:
		move = func(t *Type) error { return f.stop(t, o, stopAt) }
	case o.stopped || o.closed:
	case pauseAt < o.spawned:
		move = func(t *Type) error { return f.pause(t, o, pauseAt) }
	case o.paused():
	case o.again != nil:
		move = func(t *Type) error { return f.redriveChildren(t, o) }
	default:
		more = o.spawned < o.count && o.capacity() > 0
	}
	if move == nil {
		return more, nil
	}
	if t, err = f.typeNow(t, t.number); err == nil && t != nil { // else it was deleted
		err = move(t)
	}
	return false, err
}

// stops stops a fan-out if a row says so, and returns the index from which on its children are to
// be cancelled; -1: none are. The row may be older than a redrive of the task, which waits for its
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

// chunk returns how many children from an index on the transaction may still cancel, redrive or
// pause, and counts them as such.
func (f *followUp) chunk(o *fanOut, from int) int {
	n := max(0, min(f.s.chunks.stop-f.stopped, o.spawned-from))
	f.stopped += n
	return n
}

// stop cancels children from an index on.
func (f *followUp) stop(t *Type, o *fanOut, from int) error {
	if err := f.stopRunning(t, o); err != nil {
		return err
	}
	n := f.chunk(o, from)
	for _, r := range o.runs(from, from+n) {
		if err := f.cancelChildren(t, r.ids()); err != nil {
			return err
		}
	}
	if from += n; from < o.spawned {
		f.outbox = append(f.outbox, outboxRow{kind: outboxStop, number: o.number, id: o.id,
			fanOut: o.seq, at: from})
	}
	return nil
}

// childStopped is why a child is cancelled.
const childStopped = "its siblings have failed, or its parent has ended"

func (f *followUp) cancelChildren(t *Type, ids []int64) error {
	settled, err := cancelAll(f.ctx, f.tx, t, ids, childStopped, f.now)
	of := f.of(t)
	of.written = append(of.written, settled...)
	return err
}

// stopRunning cancels running children first, as many as a transaction may cancel: the next
// heartbeats tell their workers.
func (f *followUp) stopRunning(t *Type, o *fanOut) error {
	for _, r := range o.runs(0, o.spawned) {
		left := f.s.chunks.stop - f.interrupted
		rows, err := f.tx.Query(f.ctx, t.at(0, `SELECT id FROM {lease}
			WHERE type = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT $4`), t.number, r.first, r.last(),
			left)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if len(ids) == 0 {
			continue
		}
		f.interrupted += len(ids)
		if err := f.cancelChildren(t, ids); err != nil {
			return err
		}
	}
	return nil
}

func (f *followUp) followLater(o *fanOut) {
	f.outbox = append(f.outbox, outboxRow{kind: outboxSpawn, number: o.number, id: o.id,
		fanOut: o.seq})
}
