package trees

import (
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// treeGroup is how many fan-outs one round trip makes children of, and how many it joins: each may
// have a context of MaxInlineResults bytes.
const treeGroup = 16

// fanOutFollowUp is what a FollowUp does about fan-outs, also by giving children their priority.
type fanOutFollowUp struct{ priorityFollowUp }

// followTrees handles rows about fan-outs, sorted by fan-out. The rows of fan_outs are locked in
// that order.
func (f fanOutFollowUp) followTrees(rows []records.OutboxRow) error {
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Number == rows[0].Number {
			n++
		}
		t := f.types[rows[0].Number]
		if t == nil { // a known one is read again before its tasks are moved
			now, err := f.typeNow(t, rows[0].Number)
			if err != nil {
				return err
			}
			t = now
		}
		if t != nil { // else it was deleted
			if err := f.followTreesOf(t, rows[:n]); err != nil {
				return err
			}
		}
		rows = rows[n:]
	}
	return nil
}

// followTreesOf handles rows about fan-outs of tasks of one type.
func (f fanOutFollowUp) followTreesOf(t *config.Type, rows []records.OutboxRow) error {
	all, err := f.lockFanOuts(t, rows)
	if err != nil {
		return err
	}
	if err := f.readTallies(t, all); err != nil {
		return err
	}
	byKey := map[records.FanOutKey][]records.OutboxRow{}
	for _, r := range rows {
		byKey[r.FanOutKey()] = append(byKey[r.FanOutKey()], r)
	}
	var spawning, joining []*records.FanOut
	for _, o := range all {
		more, err := f.followTree(t, o, byKey[o.FanOutKey])
		if err != nil {
			return fmt.Errorf("fan-out %d of task %d: %w", o.Seq, o.ID, err)
		}
		switch {
		case more && o.Rule.Joined != nil:
			err = f.makeJoined(t, o)
		case more:
			spawning = append(spawning, o)
		case !o.Stopped && o.Failed(): // by a redrive that could redrive too few: it stops later
		case o.SettledAll() && !o.Closed:
			joining = append(joining, o)
			err = f.knowChildren(o)
		}
		if err != nil {
			return fmt.Errorf("the tasks started by %d: %w", o.ID, err)
		}
	}
	for len(spawning) > 0 || len(joining) > 0 {
		n := min(treeGroup, len(spawning))
		m := min(treeGroup, len(joining))
		if err := f.advance(t, spawning[:n], joining[:m]); err != nil {
			return err
		}
		spawning = spawning[n:]
		joining = joining[m:]
	}
	records.QueueSaves(&f.last, t, all)
	return nil
}

// advance makes the next children of spawning tasks, and moves on joining tasks, once their
// children ended.
func (f fanOutFollowUp) advance(t *config.Type, spawning, joining []*records.FanOut) error {
	b := &pgx.Batch{}
	onNewest := config.QueueNewest(b, t)
	s := f.queueSpawn(b, t, spawning)
	j := f.queueJoin(b, t, joining)
	if err := f.tx.SendBatch(f.ctx, b).Close(); err != nil {
		return err
	}
	if err := onNewest(); err != nil {
		return err
	}
	if err := s.spawn(); err != nil {
		return err
	}
	return j.join()
}

// lockFanOuts returns the fan-outs that rows are about. It waits for rows that were locked.
func (f fanOutFollowUp) lockFanOuts(
	t *config.Type, rows []records.OutboxRow,
) (all []*records.FanOut, err error) {
	for _, r := range rows {
		if n := len(all); n > 0 && all[n-1].FanOutKey == r.FanOutKey() {
			continue
		}
		if r.Locked == nil {
			r.Locked, err = records.LatestFanOut(f.ctx, f.tx, t, r.ID, int(r.FanOut), "FOR UPDATE")
		}
		if err != nil {
			return nil, err
		}
		if r.Locked != nil {
			all = append(all, r.Locked)
		}
	}
	return all, nil
}

// followTree handles the rows about one fan-out, but for a join. It reports whether more children
// are to be made.
func (f fanOutFollowUp) followTree(
	t *config.Type, o *records.FanOut, rows []records.OutboxRow,
) (more bool, err error) {
	f.changesOf(t).changed = append(f.changesOf(t).changed, o.ID)
	pauseAt := o.Spawned
	priorityAt := math.MaxInt
	for _, r := range rows {
		o.Ended.Add(r.Ended)
		switch r.Kind {
		case records.OutboxPause:
			pauseAt = min(pauseAt, r.At)
		case records.OutboxPriority:
			priorityAt = min(priorityAt, r.At)
		}
	}
	stopAt, err := f.stops(t, o, rows)
	if err != nil {
		return false, err
	}
	if !o.Stopped && o.Failed() {
		o.Stopped = true
		stopAt = 0
	}
	if o.Stopped {
		o.Again = nil
	}
	if stopAt < 0 && !o.Stopped && !o.Closed && priorityAt < o.Spawned {
		err := f.followPriority(t, o, priorityAt, pauseAt < o.Spawned)
		if err != nil {
			return false, err
		}
	}
	var move func(t *config.Type) error
	switch {
	case stopAt >= 0:
		move = func(t *config.Type) error { return f.stop(t, o, stopAt) }
	case o.Stopped || o.Closed:
	case pauseAt < o.Spawned:
		move = func(t *config.Type) error { return f.pause(t, o, pauseAt) }
	case o.Paused():
	case o.Again != nil:
		move = func(t *config.Type) error { return f.redriveChildren(t, o) }
	default:
		more = o.Spawned < o.Count && o.Capacity() > 0
	}
	if move == nil {
		return more, nil
	}
	if t, err = f.typeNow(t, t.Number()); err == nil && t != nil { // else it was deleted
		err = move(t)
	}
	return false, err
}

// stops stops a fan-out if a row says so, and returns the index from which on its children are to
// be cancelled; -1: none are. The row may be older than a redrive of the task, which waits for its
// children again.
func (f fanOutFollowUp) stops(
	t *config.Type, o *records.FanOut, rows []records.OutboxRow,
) (at int, err error) {
	at = -1
	for _, r := range rows {
		if r.Kind == records.OutboxStop && (at < 0 || r.At < at) {
			at = r.At
		}
	}
	if at < 0 || o.Stopped || o.Closed {
		return at, nil
	}
	var waits bool
	err = f.tx.QueryRow(f.ctx, t.SQL(0, `SELECT EXISTS (SELECT FROM {wait}
		WHERE type = $1 AND id = $2 AND seq = $3 AND reason = 'children')`),
		o.Number, o.ID, o.Waits).Scan(&waits)
	if waits {
		return -1, err
	}
	o.Stopped = true
	return at, err
}

// chunk returns how many children from an index on the transaction may still cancel, redrive or
// pause, and counts them as such.
func (f *followUp) chunk(o *records.FanOut, from int) int {
	n := max(0, min(f.s.chunks.stop-f.stopped, o.Spawned-from))
	f.stopped += n
	return n
}

// stop cancels children from an index on.
func (f fanOutFollowUp) stop(t *config.Type, o *records.FanOut, from int) error {
	if err := f.stopRunning(t, o); err != nil {
		return err
	}
	n := f.chunk(o, from)
	err := f.eachRun(t, o, from, from+n, func(t *config.Type, r records.ChildRun) error {
		return f.cancelChildren(t, r.IDs())
	})
	if err != nil {
		return err
	}
	if from += n; from < o.Spawned {
		f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxStop, Number: o.Number,
			ID: o.ID, FanOut: o.Seq, At: from})
	}
	return nil
}

// childStopped is why a child is cancelled.
const childStopped = "its siblings have failed, or its parent has ended"

func (f fanOutFollowUp) cancelChildren(t *config.Type, ids []int64) error {
	settled, err := CancelAll(f.ctx, f.tx, t, ids, childStopped, f.now)
	changes := f.changesOf(t)
	changes.written = append(changes.written, settled...)
	return err
}

// stopRunning cancels running children first, as many as a transaction may cancel: the next
// heartbeats tell their workers.
func (f fanOutFollowUp) stopRunning(t *config.Type, o *records.FanOut) error {
	return f.eachRun(t, o, 0, o.Spawned, func(t *config.Type, r records.ChildRun) error {
		left := f.s.chunks.stop - f.interrupted
		rows, err := f.tx.Query(f.ctx, t.SQL(0, `SELECT id FROM {lease}
			WHERE type = $1 AND id BETWEEN $2 AND $3 ORDER BY id LIMIT $4`),
			t.Number(), r.First, r.Last(), left)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || len(ids) == 0 {
			return err
		}
		f.interrupted += len(ids)
		return f.cancelChildren(t, ids)
	})
}

// eachRun calls do with the runs of the children that are made, with indexes from from to before
// to, and their types. Children of types and rolls that are gone are gone, too.
func (f *followUp) eachRun(
	t *config.Type, o *records.FanOut, from, to int,
	do func(t *config.Type, r records.ChildRun) error,
) error {
	for _, r := range o.Runs(from, to) {
		of := t
		if o.Types != nil {
			now, err := f.typeNow(f.types[r.Type], r.Type)
			if err != nil {
				return err
			}
			if of = now; of == nil || !of.Has(r.Position()) {
				continue
			}
		}
		if err := do(of, r); err != nil {
			return err
		}
	}
	return nil
}

// knowChildren has the transaction know all rolls with children of other types: without one, their
// results would be missing. The children ended, and their rolls are older than that.
func (f *followUp) knowChildren(o *records.FanOut) error {
	for _, number := range o.Types {
		if number == 0 || f.known[number] {
			continue
		}
		t, err := f.typeNow(f.types[number], number)
		if err != nil {
			return err
		}
		f.known[number] = true
		if f.types[number] = t; t == nil {
			delete(f.types, number) // it was deleted
		}
	}
	return nil
}

func (f *followUp) followLater(o *records.FanOut) {
	f.outbox = append(f.outbox, records.OutboxRow{Kind: records.OutboxSpawn, Number: o.Number,
		ID: o.ID, FanOut: o.Seq})
}
