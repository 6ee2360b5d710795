package catalog

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
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
// the retention of its other tasks is over, its tables are made anew with the live ones.
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
	// Lost reports whether it was opened in a history that the database lost, see EnterHistory.
	Lost bool
}

// Rolls returns the rolls of all table sets of a tenant, by set and position.
func (s *Core) Rolls(ctx context.Context, tenant string) ([]Roll, error) {
	rows, err := s.DB(tenant).Query(ctx, `SELECT table_set, position,
		  coalesce(pg_relation_size(to_regclass(format('%I.%I', $1::text,
		      concat_ws('_', 'task', nullif(table_set, ''), position)))) / $2, 0),
		  opened_at, sealed_at, drained_at, ready_dropped, idle_since,
		  remaining_since, history <> (SELECT `+postgres.Quote(schema.Of(tenant))+`.history($3::regclass))
		FROM `+postgres.Quote(schema.Of(tenant))+`.rolls
		ORDER BY table_set, position`, schema.Of(tenant), leastTask, postgres.Quote(schema.Of(tenant))+
		".rolls")
	if err != nil {
		return nil, postgres.Wrap(err, "Rolls(%q)", tenant)
	}
	rolls, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Roll, err error) {
		var sealed, drained, idle, remaining *time.Time
		err = row.Scan(&r.Set, &r.Position, &r.MaxTasks, &r.OpenedAt, &sealed, &drained, &r.ReadyDropped,
			&idle, &remaining, &r.Lost)
		r.SealedAt = OrZero(sealed)
		r.DrainedAt = OrZero(drained)
		r.IdleSince = OrZero(idle)
		r.RemainingSince = OrZero(remaining)
		return r, err
	})
	return rolls, postgres.Wrap(err, "Rolls(%q)", tenant)
}

// leastTask is the least size of a task's row in bytes, with its header and its alignment.
const leastTask = 60

// samplePages is how many pages of a task table TasksIn counts; it counts smaller tables whole.
const samplePages = 100

// TasksIn returns about how many tasks a roll has: the rows of a sample of pages, scaled up to
// the size of the table.
func (s *Core) TasksIn(ctx context.Context, set *TableSet, position int) (int64, error) {
	var pages int64
	err := s.DB(set.Tenant).QueryRow(ctx,
		`SELECT pg_relation_size($1::regclass) / current_setting('block_size')::bigint`,
		set.Tables.Task(position)).Scan(&pages)
	if err != nil || pages == 0 {
		return 0, postgres.Wrap(err, "TasksIn(%q, %q, %d)", set.Tenant, set.Name, position)
	}
	percent := min(100, 100*float64(samplePages)/float64(pages))
	var rows float64
	err = s.DB(set.Tenant).QueryRow(ctx,
		set.Tables.SQL(position, `SELECT count(*) FROM {task} TABLESAMPLE SYSTEM ($1)`), percent).
		Scan(&rows)
	return int64(rows * 100 / percent),
		postgres.Wrap(err, "TasksIn(%q, %q, %d)", set.Tenant, set.Name, position)
}

// LockPatience is how long a step waits for the lock of a busy table. It is short, as all later
// statements on the table wait too.
const LockPatience = `SET LOCAL lock_timeout = '100ms'`

// ChangeSet runs do in a transaction that locks the row of a table set, and notifies all nodes of
// the change unless do returns ErrSame. at is the set as it is now.
func (s *Core) ChangeSet(
	ctx context.Context,
	set *TableSet,
	do func(tx pgx.Tx, at TableSet, now time.Time) error,
) error {
	err := s.Change(ctx, set.Tenant, func(tx pgx.Tx) error {
		at, err := lockSet(ctx, tx, set)
		if errors.Is(err, pgx.ErrNoRows) { // another node just removed it
			return ErrSame
		}
		if err != nil {
			return err
		}
		return do(tx, at, s.Clock.Now())
	})
	if errors.Is(err, ErrSame) {
		return nil
	}
	return err
}

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
			n := slices.IndexFunc(tasks, func(task T) bool { return idOf(task).Position() != position })
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
