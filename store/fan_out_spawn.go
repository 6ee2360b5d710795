package store

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// spawnBytes is how many bytes the children have that one transaction makes.
const spawnBytes = 1 << 20

// spawns are about to make the next children of tasks, one chunk each. The row of the fan-out is
// the cursor: it moves in the same transaction.
type spawns struct {
	*followUp
	t       *Type
	all     []*fanOut
	parents map[int64]*asyncflow.Lease
}

func (f *followUp) full() bool {
	return f.spawned >= f.s.chunks.spawn || f.spawnedBytes >= spawnBytes
}

// queueSpawn reads what children of tasks are made of.
func (f *followUp) queueSpawn(b *pgx.Batch, t *Type, all []*fanOut) *spawns {
	s := &spawns{followUp: f, t: t, parents: map[int64]*asyncflow.Lease{}}
	if f.full() {
		for _, o := range all {
			f.followLater(o)
		}
		return s
	}
	s.all = all
	s.queueParents(b)
	s.queueRuns(b)
	return s
}

// queueParents reads the options and the contexts of the tasks that fan out.
func (s *spawns) queueParents(b *pgx.Batch) {
	var ids []int64
	for _, o := range s.all {
		s.parents[o.id] = &asyncflow.Lease{ID: asyncflow.TaskID{Type: s.t.Name, Number: o.id}}
		ids = append(ids, o.id)
	}
	for position, ids := range byPosition(ids) {
		b.Queue(s.t.at(position, laterPayloadsSQL), ids, s.t.number).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				if err := scanPayload(rows, s.parents); err != nil {
					return err
				}
			}
			return rows.Err()
		})
	}
}

// queueRuns takes ids for all children that are still to be made, of those tasks that have none in
// the open roll.
func (s *spawns) queueRuns(b *pgx.Batch) {
	t := s.t
	var without []*fanOut
	sum := 0
	for _, o := range s.all {
		if n := len(o.firsts); n == 0 || (run{first: o.firsts[n-1]}).position() != t.End {
			without, sum = append(without, o), sum+o.count-o.spawned
		}
	}
	if sum == 0 {
		return
	}
	b.Queue(t.at(0, `
		UPDATE {rolls} SET next_number = next_number + $3
		WHERE table_set = $1 AND position = $2
		  AND history = `+t.set.tables.qualify("history")+`(tableoid) AND next_number < $4
		RETURNING next_number - $3`), t.set.Name, t.End, sum, usedUp).QueryRow(func(row pgx.Row) error {
		var first int64
		err := row.Scan(&first)
		if errors.Is(err, pgx.ErrNoRows) { // the database has lost history: a submit opens a roll
			return errElsewhere
		}
		for _, o := range without {
			o.firsts = append(o.firsts, asyncflow.NewTaskID(t.Name, t.End, first).Number)
			o.starts = append(o.starts, int32(o.spawned))
			first += int64(o.count - o.spawned)
		}
		return err
	})
}

// spawn makes the children, once the batch has been read.
func (s *spawns) spawn() error {
	var made []*Insertion
	for _, o := range s.all {
		if s.full() {
			s.followLater(o)
			continue
		}
		parent := s.parents[o.id]
		if parent.Context == nil {
			return unknownTask(parent.ID)
		}
		work, err := o.rule.Spread(parent.Context)
		if err != nil {
			return err
		}
		n := min(o.count-o.spawned, o.capacity())
		items, err := s.children(o, parent, work, min(n, s.s.chunks.spawn-s.spawned))
		if err != nil {
			return err
		}
		s.spawned += len(items)
		if o.spawned += len(items); len(items) < n {
			s.followLater(o)
		}
		made = append(made, items...)
	}
	queueTasks(&s.last, s.t, made)
	of := s.of(s.t)
	of.made = append(of.made, made...)
	return nil
}

// children returns up to n of the next children.
func (s *spawns) children(
	o *fanOut, parent *asyncflow.Lease, work asyncflow.Spread, n int,
) (items []*Insertion, err error) {
	t, f := s.t, s.followUp
	stage, attempt := t.Place(o.stage, 1)
	run, list := len(o.firsts)-1, work.Items(o.spawned, n)
	if work.Stored != (asyncflow.StoredResults{}) {
		if list, err = s.storedItems(o, work.Stored, n); err != nil {
			return nil, err
		}
		n = len(list)
	}
	for i := o.spawned; i < o.spawned+n && f.spawnedBytes < spawnBytes; i++ {
		doc := parent.Context
		if o.rule.Items != "" {
			doc = json.RawMessage("null") // the list can't have become shorter
			if at := i - o.spawned; at < len(list) {
				doc = bytes.Clone(list[at]) // the parent's context goes
			}
		}
		options := asyncflow.Options{Priority: parent.Options.Priority, Retry: parent.Options.Retry,
			Child: &asyncflow.Child{Parent: o.id, Seq: int(o.seq), Index: i, Count: o.count,
				Shard: o.rule.Shards > 0, Vote: o.rule.Quorum != nil, Shared: work.Shared}}
		items = append(items, &Insertion{Created: f.now, Options: options, Context: doc,
			FlowKey: t.LineKeyOf(options),
			ID:      asyncflow.TaskID{Type: t.Name, Number: o.firsts[run] + int64(i-int(o.starts[run]))},
			Verdict: asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: attempt,
				OrderTime: asyncflow.EnterOrder(t.TaskType, t.StageIndex(stage), options, f.now)}})
		if t.LineForClaims(stage, true) {
			items[len(items)-1].Verdict.Reason = asyncflow.WaitClaimer
		}
		f.spawnedBytes += len(doc) + len(work.Shared)
	}
	return items, nil
}

// storedItems returns up to n of the next items of a task that fans out over the results of an
// earlier fan-out of its own.
func (s *spawns) storedItems(
	o *fanOut, stored asyncflow.StoredResults, n int,
) (items []json.RawMessage, err error) {
	var results []ChildResult
	form := asyncflow.ResultsOutputs
	earlier, err := latestFanOut(s.ctx, s.tx, s.t, o.id, stored.FanOut, "")
	if err == nil && earlier != nil {
		form = earlier.rule.Results
		results, err = readResults(s.ctx, s.tx, s.t, earlier, o.spawned, n, spawnBytes-s.spawnedBytes)
	}
	if err != nil {
		return nil, err
	}
	if len(results) == 0 { // it was forgotten since
		results = make([]ChildResult, n)
	}
	for _, r := range results {
		items = append(items, r.append(nil, form))
	}
	return items, nil
}
