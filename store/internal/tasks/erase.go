package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Rows of task and journal are only ever inserted, but for an erasure: it overwrites what the
// submitter, workers and receivers said, and leaves what the database itself knows. It holds the
// row of the roll, so that no redrive of its tasks runs at once, and neither a compaction nor a
// drop. See ADR 48.

// erasureNeeds is what all nodes must know before tasks are erased: another one would run a task
// again without its context.
var erasureNeeds = []asyncflow.Capability{asyncflow.CapErasure}

// Erase erases the contents of a final task, and returns what remains of it. by is who asks. A task
// that was erased before is returned as it is; one that is not final, or that others still need
// something of, is CodeConflict.
func (s *Tasks) Erase(
	ctx context.Context, tenant string, id asyncflow.TaskID, by string,
) (Task, error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	if err = s.core.CheckKnown(ctx, erasureNeeds); err != nil {
		return Task{}, err
	}
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		if !t.Has(id.Position()) {
			return config.UnknownTask(id)
		}
		return audit.Do(ctx, s.core, t.Tenant, func(tx pgx.Tx) error {
			done, refused, err := s.eraseAll(ctx, tx, t, []int64{id.Number},
				asyncflow.Erasure{At: s.core.Clock.Now(), By: by})
			switch {
			case err != nil:
				return err
			case refused[id.Number] != nil:
				return refused[id.Number]
			case len(done) == 0:
				return postgres.ErrSame
			}
			return nil
		})
	})
	if err != nil && !errors.Is(err, postgres.ErrSame) {
		return Task{}, postgres.Wrap(unlessLocked(err), "Erase(%q, %s)", tenant, id)
	}
	s.core.Watchers.Tell(t.Key(), id.Number)
	return s.Task(ctx, tenant, id)
}

// unlessLocked explains that a roll is locked for longer than an erasure waits: by a compaction, a
// drop, a vacuum of its tables, or another erasure.
func unlessLocked(err error) error {
	if postgres.State(err) != pgerrcode.LockNotAvailable {
		return err
	}
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable, RetryAfter: time.Second, Err: err,
		Message: "the tables of the task are locked by a background job: try again in a moment"}
}

// erasurePatience is how long an erasure waits for the lock of a roll, or of its tables. It is less
// than the server's deadlock_timeout, so that an application's transaction, which may lock rolls in
// another order, is not the one that fails.
const erasurePatience = `SET LOCAL lock_timeout = '500ms'`

// erasable is a final task with contents that may be erased.
type erasable struct {
	id      int64
	options asyncflow.Options
}

// eraseAll erases the contents of the given tasks of one roll, where it can. It returns their ids,
// and for each other task why it can't be erased. Tasks that were erased before are in neither.
func (s *base) eraseAll(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, by asyncflow.Erasure,
) (done []int64, refused map[int64]error, err error) {
	position := asyncflow.TaskID{Number: ids[0]}.Position()
	if _, err := tx.Exec(ctx, erasurePatience); err != nil {
		return nil, nil, err
	}
	if err := config.LockRoll(ctx, tx, t.SetAt(position), position, "UPDATE"); err != nil {
		return nil, nil, err
	}
	e := &erasure{ctx: ctx, s: s, tx: tx, by: by}
	all, refused, err := e.finals(t, ids)
	if err != nil {
		return nil, refused, err
	}
	all, err = e.withoutNeeded(t, all, refused)
	if err != nil || len(all) == 0 {
		return nil, refused, err
	}
	if err := e.write(t, position, all); err != nil {
		return nil, nil, err
	}
	if err := e.eraseNotifications(t, all); err != nil {
		return nil, nil, err
	}
	return idsOf(all), refused, nil
}

func idsOf(all []erasable) []int64 {
	return records.Column(all, func(e *erasable) int64 { return e.id })
}

// erasure is the erasure of some tasks, in a transaction.
type erasure struct {
	ctx context.Context
	s   *base
	tx  pgx.Tx
	by  asyncflow.Erasure
}

// FinalsSQL is written like records.TakeAnyWaitSQL.
const FinalsSQL = `
SELECT t.id, coalesce(j.final, '') <> '', coalesce({options}, '{}')
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t
LEFT JOIN LATERAL (SELECT * FROM {journal} j WHERE j.type = t.type AND j.id = t.id
  ORDER BY seq DESC LIMIT 1) j ON true
ORDER BY t.id`

// finals returns the tasks that are final and still with their contents. For each that is live, or
// that there isn't, it returns why it can't be erased.
func (e *erasure) finals(
	t *config.Type, ids []int64,
) (all []erasable, refused map[int64]error, err error) {
	refused = map[int64]error{}
	for _, id := range ids {
		refused[id] = config.UnknownTask(asyncflow.TaskID{Type: t.Name, Number: id})
	}
	rows, _ := e.tx.Query(e.ctx, t.SQL(asyncflow.TaskID{Number: ids[0]}.Position(), FinalsSQL), ids,
		t.Number())
	var one erasable
	var final bool
	_, err = pgx.ForEachRow(rows, []any{&one.id, &final, &one.options}, func() error {
		switch {
		case !final:
			refused[one.id] = asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s is not final: cancel it first",
				asyncflow.TaskID{Type: t.Name, Number: one.id})
		case one.options.Erased != nil:
			delete(refused, one.id)
		default:
			delete(refused, one.id)
			all = append(all, one)
		}
		one = erasable{}
		return nil
	})
	return all, refused, err
}
