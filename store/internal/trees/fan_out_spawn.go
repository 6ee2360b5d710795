package trees

import (
	"bytes"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// spawnBytes is how many bytes the children have that one transaction makes.
const spawnBytes = 1 << 20

// spawns are about to make the next children of tasks, one chunk each. The row of the fan-out is
// the cursor: it moves in the same transaction.
type spawns struct {
	fanOutFollowUp
	t       *config.Type
	all     []*records.FanOut
	parents map[int64]*asyncflow.Lease
}

func (f *followUp) spawnLimitReached() bool {
	return f.spawned >= f.s.chunks.spawn || f.spawnedBytes >= spawnBytes
}

// queueSpawn reads what children of tasks are made of.
func (f fanOutFollowUp) queueSpawn(b *pgx.Batch, t *config.Type, all []*records.FanOut) *spawns {
	s := &spawns{fanOutFollowUp: f, t: t, parents: map[int64]*asyncflow.Lease{}}
	if f.spawnLimitReached() {
		for _, o := range all {
			f.followLater(o)
		}
		return s
	}
	s.all = all
	s.queueParents(b)
	return s
}

// queueParents reads the options and the contexts of the tasks that fan out.
func (s *spawns) queueParents(b *pgx.Batch) {
	var all []asyncflow.Lease
	for _, o := range s.all {
		l := asyncflow.Lease{ID: asyncflow.TaskID{Type: s.t.Name, Number: o.ID}, Seq: int(o.Seq)}
		s.parents[o.ID] = &l
		all = append(all, l)
	}
	hot.QueuePayloads(s.s.hot, b, s.t, all, s.parents)
}

// takeRuns takes ids for all children still to be made of the tasks that get some now, as far as
// they have no ids in the open roll. It leaves the other tasks to later transactions.
func (s *spawns) takeRuns() error {
	t := s.t
	var without []*records.FanOut
	sum := 0
	made := s.spawned
	for i, o := range s.all {
		if made >= s.s.chunks.spawn {
			for _, later := range s.all[i:] {
				s.followLater(later)
			}
			s.all = s.all[:i]
			break
		}
		made += min(o.Count-o.Spawned, o.Capacity())
		if n := len(o.Firsts); n == 0 ||
			(records.ChildRun{First: o.Firsts[n-1]}).Position() != t.End {
			without = append(without, o)
			sum += o.Count - o.Spawned
		}
	}
	if sum == 0 {
		return nil
	}
	first, err := s.takeNumbers(t, sum)
	if err != nil {
		return err
	}
	for _, o := range without {
		o.Firsts = append(o.Firsts, asyncflow.NewTaskID(t.Name, t.End, first).Number)
		o.Starts = append(o.Starts, int32(o.Spawned))
		first += int64(o.Count - o.Spawned)
	}
	return nil
}

// spawn makes the children, once the batch has been read.
func (s *spawns) spawn() error {
	if err := s.takeRuns(); err != nil {
		return err
	}
	var made []*hot.Insertion
	for _, o := range s.all {
		if s.spawnLimitReached() {
			s.followLater(o)
			continue
		}
		parent := s.parents[o.ID]
		if parent.Context == nil {
			return config.UnknownTask(parent.ID)
		}
		work, err := o.Rule.Spread(parent.Context)
		if err != nil {
			return err
		}
		if parent.Options.Spawned != nil { // there may be tasks above it
			p, err := s.priorityBelow(s.t, o, parent.Options)
			if err != nil {
				return err
			}
			if p.above {
				parent.Options.Priority = p.priority
			}
		}
		n := min(o.Count-o.Spawned, o.Capacity())
		items, err := s.children(o, parent, work, min(n, s.s.chunks.spawn-s.spawned))
		if err != nil {
			return err
		}
		s.spawned += len(items)
		if o.Spawned += len(items); len(items) < n {
			s.followLater(o)
		}
		made = append(made, items...)
	}
	hot.QueueTasks(&s.last, s.t, made)
	changes := s.changesOf(s.t)
	changes.begin.New = append(changes.begin.New, made...)
	return nil
}

// children returns up to n of the next children.
func (s *spawns) children(
	o *records.FanOut, parent *asyncflow.Lease, work asyncflow.Spread, n int,
) (items []*hot.Insertion, err error) {
	t := s.t
	f := s.followUp
	stage, attempt := t.Mapped(o.Stage, 1)
	run := len(o.Firsts) - 1
	list := work.Items(o.Spawned, n)
	if work.Stored != (asyncflow.StoredResults{}) {
		if list, err = s.storedItems(o, work.Stored, n); err != nil {
			return nil, err
		}
		n = len(list)
	}
	for i := o.Spawned; i < o.Spawned+n && f.spawnedBytes < spawnBytes; i++ {
		doc := parent.Context
		if o.Rule.Items != "" {
			doc = json.RawMessage("null") // the list can't have become shorter
			if at := i - o.Spawned; at < len(list) {
				doc = bytes.Clone(list[at]) // the parent's context goes
			}
		}
		options := asyncflow.Options{Priority: parent.Options.Priority, Retry: parent.Options.Retry,
			Spawned: inherited(parent.Options, t.Number()), Labels: parent.Options.Labels,
			Claim: parent.Options.Claim,
			Child: &asyncflow.Child{Parent: o.ID, Seq: int(o.Seq), Index: i, Count: o.Count,
				Shard: o.Rule.Shards > 0, Vote: o.Rule.Quorum != nil, Shared: work.Shared}}
		items = append(items, &hot.Insertion{Created: f.now, Options: options, Context: doc,
			FlowKey: t.LineKeyOf(options),
			ID: asyncflow.TaskID{Type: t.Name, Number: o.Firsts[run] +
				int64(i-int(o.Starts[run]))},
			Verdict: asyncflow.Verdict{Kind: asyncflow.Retry, Stage: stage, Attempt: attempt,
				OrderTime: asyncflow.EnterOrder(t.TaskType, t.StageIndex(stage), options, f.now)}})
		if t.LineForClaims(stage, true) {
			items[len(items)-1].Verdict.Reason = asyncflow.WaitClaimer
			items[len(items)-1].Verdict.Claim = options.Claim
		}
		f.spawnedBytes += len(doc) + len(work.Shared)
	}
	return items, nil
}

// storedItems returns up to n of the next items of a task that fans out over the results of an
// earlier fan-out of its own.
func (s *spawns) storedItems(
	o *records.FanOut, stored asyncflow.StoredResults, n int,
) (items []json.RawMessage, err error) {
	var results []ChildResult
	form := asyncflow.ResultsOutputs
	earlier, err := records.LatestFanOut(s.ctx, s.tx, s.t, o.ID, stored.FanOut, "")
	if err == nil && earlier != nil {
		err = s.knowChildren(earlier)
	}
	if err == nil && earlier != nil {
		form = earlier.Rule.Results
		r := &resultReader{ctx: s.ctx, db: s.tx, t: s.t, types: s.types, o: earlier}
		results, err = r.read(o.Spawned, n, spawnBytes-s.spawnedBytes)
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
