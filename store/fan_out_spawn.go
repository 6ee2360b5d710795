package store

import (
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// spawn makes the next children of a task, in one chunk. The row of the fan-out is the cursor: it
// moves in the same transaction.
func (f *followUp) spawn(t *Type, o *fanOut) error {
	n := min(o.count-o.spawned, o.room())
	if n <= 0 {
		return nil
	}
	if f.spawned >= f.s.chunks.spawn {
		f.spawnLater(o)
		return nil
	}
	parent, err := f.parentOf(t, o)
	if err != nil {
		return err
	}
	work, err := o.rule.Spread(parent.Context)
	if err != nil {
		return err
	}
	if err := f.takeRun(t, o); err != nil {
		return err
	}
	items := f.children(t, o, parent, work, min(n, f.s.chunks.spawn))
	b := &pgx.Batch{}
	queueTasks(b, t, items)
	if err := f.tx.SendBatch(f.ctx, b).Close(); err != nil {
		return err
	}
	of := f.of(t)
	of.tokens.addNew(items, f.now)
	of.created += len(items)
	f.spawned += len(items)
	if o.spawned += len(items); len(items) < n {
		f.spawnLater(o)
	}
	return nil
}

// parentOf reads the options and the context of the task that fans out.
func (f *followUp) parentOf(t *Type, o *fanOut) (asyncflow.Lease, error) {
	l := asyncflow.Lease{ID: asyncflow.TaskID{Type: t.Name, Number: o.id}}
	rows, err := f.tx.Query(f.ctx, t.at(l.ID.Position(), laterPayloadsSQL), []int64{o.id}, t.number)
	if err != nil {
		return l, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := scanPayload(rows, map[int64]*asyncflow.Lease{o.id: &l}); err != nil {
			return l, err
		}
	}
	if rows.Err() == nil && l.Context == nil {
		return l, unknownTask(l.ID)
	}
	return l, rows.Err()
}

// takeRun takes ids for all children that are still to be made, unless there are some in the open
// roll.
func (f *followUp) takeRun(t *Type, o *fanOut) error {
	if n := len(o.firsts); n > 0 && (run{first: o.firsts[n-1]}).position() == t.End {
		return nil
	}
	var first int64
	err := f.tx.QueryRow(f.ctx, t.at(0, `
		UPDATE {rolls} SET next_number = next_number + $3
		WHERE table_set = $1 AND position = $2
		  AND history = `+t.set.tables.qualify("history")+`(tableoid)
		RETURNING next_number - $3`), t.set.Name, t.End, o.count-o.spawned).Scan(&first)
	if errors.Is(err, pgx.ErrNoRows) { // the database has lost history: the next submit opens a roll
		return errElsewhere
	}
	if err != nil {
		return err
	}
	o.firsts = append(o.firsts, asyncflow.NewTaskID(t.Name, t.End, first).Number)
	o.starts = append(o.starts, int32(o.spawned))
	return nil
}

// children returns up to n of the next children.
func (f *followUp) children(
	t *Type, o *fanOut, parent asyncflow.Lease, work asyncflow.Spread, n int,
) (items []*Insertion) {
	stage, attempt := t.Place(o.stage, 1)
	run := len(o.firsts) - 1
	size := 0
	for i := o.spawned; i < o.spawned+n && size < spawnBytes; i++ {
		doc := parent.Context
		if o.rule.Shards == 0 {
			doc = json.RawMessage("null") // the list can't have become shorter
			if i < len(work.Items) {
				doc = work.Items[i]
			}
		}
		options := asyncflow.Options{Priority: parent.Options.Priority, Retry: parent.Options.Retry,
			Child: &asyncflow.Child{Parent: o.id, Seq: int(o.seq), Index: i, Count: o.count,
				Shard: o.rule.Shards > 0, Shared: work.Shared}}
		items = append(items, &Insertion{Created: f.now, Options: options, Context: doc,
			ID: asyncflow.TaskID{Type: t.Name, Number: o.firsts[run] + int64(i-int(o.starts[run]))},
			Verdict: asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: attempt,
				OrderTime: asyncflow.EnterOrder(t.TaskType, t.StageIndex(stage), options, f.now)}})
		size += len(doc) + len(work.Shared)
	}
	return items
}
