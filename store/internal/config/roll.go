package config

import (
	"iter"
	"slices"
	"time"

	"github.com/asyncflow/asyncflow"
)

// A roll goes through six steps, each a short transaction that a crash leaves either
// done or not begun:
//
//	open     its tables are made, and end_pos is its position
//	sealed   the next roll is open and every node knows: its task and ready tables get no
//	         more rows
//	drained  its ready table is empty: begin_pos moves to the next roll
//	cleared  its ready table is dropped
//	idle     it has no live task: nothing can happen in it any more, except a redrive
//	dropped  the retention is over: its other tables are dropped
//
// A roll that can't be dropped, as it or an older one has live tasks, is compacted meanwhile: once
// the retention of its other tasks is over, its tables are made anew with those that are needed. If
// these are too many, it is trimmed: its other tasks are deleted in small steps.
//
// A step that waits for the lock of a busy table gives up soon and is tried again.

// Roll is one generation of the tables of a table set.
type Roll struct {
	Set          string // its name
	Position     int
	MaxTasks     int64 // the most tasks that fit into its size; 0: it has none
	OpenedAt     time.Time
	SealedAt     time.Time // zero: not sealed
	DrainedAt    time.Time // zero: tasks are leased from it
	ReadyDropped bool
	IdleSince    time.Time // zero: a task may be live
	// RemainingSince is since when only few of its tasks were live; zero: that isn't known, or the
	// others are gone.
	RemainingSince time.Time
	TrimAt         time.Time // when the next step of its trimming is due; zero: none is planned
	Dropping       bool      // its drop has begun, see MarkDropping
	// Lost reports whether it was opened in an incarnation of the database that is lost, see
	// EnterIncarnation.
	Lost bool
}

// LockPatience is how long a step waits for the lock of a busy table. It is short, as all later
// statements on the table wait too.
const LockPatience = `SET LOCAL lock_timeout = '100ms'`

// ByPosition divides ids by the position of their roll. The ids of each roll ascend, without
// duplicates.
func ByPosition(ids []int64) map[int][]int64 {
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	all := map[int][]int64{}
	for _, id := range ids {
		position := asyncflow.TaskID{Number: id}.Position()
		all[position] = append(all[position], id)
	}
	return all
}

// ByRoll divides tasks, sorted by roll, into one slice per roll. There are several only just after
// a roll opened.
func ByRoll[T any](tasks []T, idOf func(T) asyncflow.TaskID) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(tasks) > 0 {
			position := idOf(tasks[0]).Position()
			n := slices.IndexFunc(tasks,
				func(task T) bool { return idOf(task).Position() != position })
			if n < 0 {
				n = len(tasks)
			}
			if !yield(tasks[:n:n]) {
				return
			}
			tasks = tasks[n:]
		}
	}
}
