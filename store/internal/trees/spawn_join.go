package trees

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Tasks that an attempt started, and for which its task waits, are the children of a fan-out whose
// rule has Joined. They are made in the order of their types, so that a type has few
// runs. The list of them is in spawns, and the fan-out is the cursor.

// listBytes is how many bytes of lists let a transaction read no more of them. Each is read anew
// when some of its tasks are made.
const listBytes = 4 << 20

// makeJoined makes the next tasks for which a task waits.
func (f fanOutFollowUp) makeJoined(t *config.Type, o *records.FanOut) error {
	if f.spawnLimitReached() || f.listed > listBytes {
		f.followLater(o)
		return nil
	}
	list, by, err := f.joinedList(t, o)
	if err != nil {
		return err
	}
	n := min(o.Count-o.Spawned, o.Capacity())
	made := 0
	cancelled := o.Ended.Cancelled
	for made < n && !f.spawnLimitReached() {
		s, err := list.next()
		if err != nil {
			return err
		}
		if err := f.makeJoinedOf(o, list, s, by, n, &made); err != nil {
			return err
		}
	}
	if made < n || o.Ended.Cancelled > cancelled { // the rest, or what follows from the ends
		f.followLater(o)
	}
	if o.Spawned == o.Count {
		f.last.Queue(t.SQL(0, `UPDATE {spawns} SET tasks = NULL
			WHERE type = $1 AND id = $2 AND seq = $3`), o.Number, o.ID, o.Seq-1)
	}
	return nil
}

// joinedList reads the list of the tasks for which a task waits, from the next one on, and what
// they know of it.
func (f fanOutFollowUp) joinedList(
	t *config.Type, o *records.FanOut,
) (*startList, *asyncflow.Spawned, error) {
	var text string
	var depth int
	var named time.Time // when the worker named the tasks
	b := &pgx.Batch{}
	b.Queue(t.SQL(asyncflow.TaskID{Number: o.ID}.Position(), `
		SELECT s.depth, s.tasks, j.at FROM {spawns} s
		JOIN {journal} j ON j.type = s.type AND j.id = s.id AND j.seq = s.seq
		WHERE s.type = $1 AND s.id = $2 AND s.seq = $3`), o.Number, o.ID, o.Seq-1).
		QueryRow(func(row pgx.Row) error { return row.Scan(&depth, &text, &named) })
	records.QueuePlaces(b, t, o)
	options := records.QueueOptions(b, t, []int64{o.ID})
	if err := f.tx.SendBatch(f.ctx, b).Close(); err != nil {
		return nil, nil, err
	}
	f.listed += len(text)
	id := asyncflow.TaskID{Type: t.Name, Number: o.ID}
	list := newStartList(text, o.Spawned)
	p, err := f.priorityBelow(t, o, options[o.ID])
	if err != nil {
		return nil, nil, err
	}
	list.priority = p.priority
	list.changed = p.at.After(named)
	list.named = named
	by := &asyncflow.Spawned{Parent: id.String(), Depth: depth,
		Above: options[o.ID].Awaits(t.Number())}
	if parent := options[o.ID].Spawned; parent != nil {
		by.PriorityAt = parent.PriorityAt
	}
	return list, by, nil
}

// startList is a list of tasks to start; some are skipped.
type startList struct {
	walk asyncflow.JSONWalk
	left json.RawMessage // a task that was read, and not taken
	// priority is that of the parent in its stage, for tasks that name none. If it was changed
	// since the worker named the tasks, it is for all.
	priority asyncflow.Priority
	changed  bool
	named    time.Time // when the worker named the tasks
}

func newStartList(text string, skip int) *startList {
	l := &startList{walk: asyncflow.JSONWalk{Doc: []byte(text)}}
	l.walk.Enter()
	for range skip {
		l.walk.Next()
		l.walk.Skip()
	}
	return l
}

// next returns the next task without taking it.
func (l *startList) next() (s asyncflow.SpawnedTask, err error) {
	if l.left == nil {
		if !l.walk.Next() {
			return s, errors.New("the list of tasks to start is too short")
		}
		l.left = l.walk.Skip()
	}
	return s, json.Unmarshal(l.left, &s)
}

// take takes the next task.
func (l *startList) take() { l.left = nil }

// countType returns how many of the next tasks have a type, up to most.
func (l *startList) countType(name string, most int) (n int, err error) {
	ahead := *l
	for n < most {
		s, err := ahead.next()
		if err != nil || s.Type != name {
			return n, err
		}
		ahead.take()
		n++
	}
	return n, nil
}

// makeJoinedOf makes the next tasks of the type of s, until n are made in all. All of a type that
// is gone count as cancelled.
func (f fanOutFollowUp) makeJoinedOf(
	o *records.FanOut, list *startList, s asyncflow.SpawnedTask, by *asyncflow.Spawned, n int,
	made *int,
) error {
	t, err := f.typeNamed(s.Type)
	if err != nil {
		return err
	}
	if t == nil {
		gone, err := list.countType(s.Type, n-*made)
		if err != nil {
			return err
		}
		for range gone {
			if _, err := list.next(); err != nil {
				return err
			}
			list.take()
		}
		o.Firsts = append(o.Firsts, 0)
		o.Starts = append(o.Starts, int32(o.Spawned))
		o.Types = append(o.Types, 0)
		o.Spawned += gone
		o.Ended.Cancelled += gone
		*made += gone
		return nil
	}
	if err := f.enterRun(o, list, t); err != nil {
		return err
	}
	run := len(o.Firsts) - 1
	var items []*hot.Insertion
	for *made < n && !f.spawnLimitReached() {
		first := o.Firsts[run] + int64(o.Spawned-int(o.Starts[run]))
		task := s.NewTask(f.partOf(o, by))
		if len(task.Options.Priority) == 0 || list.changed {
			task.Options.Priority = list.priority
		} else {
			task.Options.Spawned.PriorityAt = list.named
		}
		item := hot.NewInsertion(t, asyncflow.TaskID{Number: first}.Sequence(), &task, f.now)
		items = append(items, &item)
		f.spawned++
		f.spawnedBytes += len(task.Context)
		f.charge(t, &item)
		list.take()
		o.Spawned++
		*made++
		if o.Spawned == o.Count {
			break
		}
		if s, err = list.next(); err != nil {
			return err
		}
		if s.Type != t.Name {
			break
		}
	}
	hot.QueueTasks(&f.last, t, items)
	changes := f.changesOf(t)
	changes.begin.New = append(changes.begin.New, items...)
	return nil
}

// partOf returns what the next child knows of its parent.
func (f fanOutFollowUp) partOf(o *records.FanOut, by *asyncflow.Spawned) *asyncflow.Spawned {
	child := *by
	child.Part = &asyncflow.Part{Index: o.Place(o.Spawned), Count: o.Count, Rank: o.Spawned,
		Awaited: asyncflow.Awaited{Type: o.Number, ID: o.ID, Seq: int(o.Seq)}}
	return &child
}

// enterRun takes ids for all children of the type still to be made, unless the latest run has some
// in the open roll.
func (f fanOutFollowUp) enterRun(o *records.FanOut, list *startList, t *config.Type) error {
	if n := len(o.Firsts); n > 0 && o.Types[n-1] == t.Number() &&
		(records.ChildRun{First: o.Firsts[n-1]}).Position() == t.End {
		return nil
	}
	n, err := list.countType(t.Name, o.Count-o.Spawned)
	if err != nil {
		return err
	}
	first, err := f.takeIDs(t, n)
	if err != nil {
		return err
	}
	o.Firsts = append(o.Firsts, first)
	o.Starts = append(o.Starts, int32(o.Spawned))
	o.Types = append(o.Types, t.Number())
	return nil
}

// takeIDs returns the first of n new ids in the open roll of a type.
func (f fanOutFollowUp) takeIDs(t *config.Type, n int) (int64, error) {
	first, err := f.takeNumbers(t, n)
	return asyncflow.NewTaskID(t.Name, t.End, first).Number, err
}
