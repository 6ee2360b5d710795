package store

import (
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// spawnBytes is how many bytes the children have that one transaction makes.
const spawnBytes = 1 << 20

// spawn makes the next children of tasks, one chunk each. The row of the fan-out is the cursor: it
// moves in the same transaction.
func (f *followUp) spawn(t *Type, all []*fanOut) error {
	parents, err := f.parentsOf(t, all)
	if err != nil {
		return err
	}
	if err := f.takeRuns(t, all); err != nil {
		return err
	}
	var made []*Insertion
	for _, o := range all {
		if f.spawned >= f.s.chunks.spawn || f.spawnedBytes >= spawnBytes {
			f.spawnLater(o)
			continue
		}
		parent := parents[o.id]
		work, err := o.rule.Spread(parent.Context)
		if err != nil {
			return err
		}
		n := min(o.count-o.spawned, o.room())
		items := f.children(t, o, parent, work, min(n, f.s.chunks.spawn-f.spawned))
		f.spawned += len(items)
		if o.spawned += len(items); len(items) < n {
			f.spawnLater(o)
		}
		made = append(made, items...)
	}
	if len(made) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	queueTasks(b, t, made)
	of := f.of(t)
	of.tokens.addNew(made, f.now)
	of.created += len(made)
	return f.tx.SendBatch(f.ctx, b).Close()
}

// parentsOf reads the options and the contexts of the tasks that fan out.
func (f *followUp) parentsOf(t *Type, all []*fanOut) (map[int64]*asyncflow.Lease, error) {
	parents, ids := map[int64]*asyncflow.Lease{}, []int64{}
	for _, o := range all {
		id := asyncflow.TaskID{Type: t.Name, Number: o.id}
		parents[o.id], ids = &asyncflow.Lease{ID: id}, append(ids, o.id)
	}
	for position, ids := range byPosition(ids) {
		rows, err := f.tx.Query(f.ctx, t.at(position, laterPayloadsSQL), ids, t.number)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			if err := scanPayload(rows, parents); err != nil {
				rows.Close()
				return nil, err
			}
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	for _, l := range parents {
		if l.Context == nil {
			return nil, unknownTask(l.ID)
		}
	}
	return parents, nil
}

// takeRuns takes ids for all children that are still to be made, of those tasks that have none in
// the open roll.
func (f *followUp) takeRuns(t *Type, all []*fanOut) error {
	var without []*fanOut
	sum := 0
	for _, o := range all {
		if n := len(o.firsts); n == 0 || (run{first: o.firsts[n-1]}).position() != t.End {
			without, sum = append(without, o), sum+o.count-o.spawned
		}
	}
	if sum == 0 {
		return nil
	}
	var first int64
	err := f.tx.QueryRow(f.ctx, t.at(0, `
		UPDATE {rolls} SET next_number = next_number + $3
		WHERE table_set = $1 AND position = $2
		  AND history = `+t.set.tables.qualify("history")+`(tableoid)
		RETURNING next_number - $3`), t.set.Name, t.End, sum).Scan(&first)
	if errors.Is(err, pgx.ErrNoRows) { // the database has lost history: the next submit opens a roll
		return errElsewhere
	}
	if err != nil {
		return err
	}
	for _, o := range without {
		o.firsts = append(o.firsts, asyncflow.NewTaskID(t.Name, t.End, first).Number)
		o.starts = append(o.starts, int32(o.spawned))
		first += int64(o.count - o.spawned)
	}
	return nil
}

// children returns up to n of the next children.
func (f *followUp) children(
	t *Type, o *fanOut, parent *asyncflow.Lease, work asyncflow.Spread, n int,
) (items []*Insertion) {
	stage, attempt := t.Place(o.stage, 1)
	run, list := len(o.firsts)-1, work.Items(o.spawned, n)
	for i := o.spawned; i < o.spawned+n && f.spawnedBytes < spawnBytes; i++ {
		doc := parent.Context
		if o.rule.Shards == 0 {
			doc = json.RawMessage("null") // the list can't have become shorter
			if at := i - o.spawned; at < len(list) {
				doc = list[at]
			}
		}
		options := asyncflow.Options{Priority: parent.Options.Priority, Retry: parent.Options.Retry,
			Child: &asyncflow.Child{Parent: o.id, Seq: int(o.seq), Index: i, Count: o.count,
				Shard: o.rule.Shards > 0, Shared: work.Shared}}
		items = append(items, &Insertion{Created: f.now, Options: options, Context: doc,
			ID: asyncflow.TaskID{Type: t.Name, Number: o.firsts[run] + int64(i-int(o.starts[run]))},
			Verdict: asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: attempt,
				OrderTime: asyncflow.EnterOrder(t.TaskType, t.StageIndex(stage), options, f.now)}})
		if t.LineForClaims(stage, true) {
			items[len(items)-1].Verdict.Reason = asyncflow.WaitClaimer
		}
		f.spawnedBytes += len(doc) + len(work.Shared)
	}
	return items
}
