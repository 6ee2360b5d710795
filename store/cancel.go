package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// cancelTries is how often a cancel follows a task that moves on meanwhile.
const cancelTries = 10

// Cancel ends a task that is not final, wherever it stands, and returns it. An
// attempt under way is not interrupted: its worker learns of it by its next
// heartbeat, and what it reports counts no more. A task that was cancelled before is
// returned as it is; one that ended otherwise is CodeConflict.
func (s *Store) Cancel(ctx context.Context, tenant string, id asyncflow.TaskID, reason string) (Task, error) {
	t, err := s.typeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	for range cancelTries {
		cancelled, err := s.tryCancel(ctx, t, id, reason)
		if err != nil {
			return Task{}, wrap(err, "Cancel(%q, %s)", tenant, id)
		}
		task, err := s.Task(ctx, tenant, id)
		switch {
		case err != nil:
			return Task{}, err
		case cancelled || task.Status == asyncflow.StatusCancelled:
			s.watched.tell(t.Key(), id.Number)
			return task, nil
		case task.Status.Final():
			return Task{}, asyncflow.Errorf(asyncflow.CodeConflict, "task %s can't be cancelled: it has %s", id, task.Status)
		}
	}
	return Task{}, &asyncflow.Error{Code: asyncflow.CodeUnavailable, Message: "the task moves on too fast to be cancelled; try again", RetryAfter: time.Second}
}

// tryCancel takes the task's token row from where it is now, if it is still there.
func (s *Store) tryCancel(ctx context.Context, t *Type, id asyncflow.TaskID, reason string) (cancelled bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		l, err := takeAnyToken(ctx, tx, t, id)
		if err == pgx.ErrNoRows {
			return nil // it has just moved on, or is final
		}
		if err != nil {
			return err
		}
		cancelled = true
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled, Error: reason}
		now := s.Clock.Now()
		settled := asyncflow.Settlement{Lease: l, Outcome: o, Verdict: asyncflow.Decide(t.TaskType, l, o, now)}
		return writeSettled(ctx, tx, t, []asyncflow.Settlement{settled}, &tokens{}, now)
	})
	return cancelled && err == nil, err
}

// takeAnyToken deletes a task's token row, wherever it is, and returns it as a
// lease; pgx.ErrNoRows when it is in none of the places looked at.
func takeAnyToken(ctx context.Context, tx pgx.Tx, t *Type, id asyncflow.TaskID) (l asyncflow.Lease, err error) {
	l.ID = id
	take := func(position int, sql string, args ...any) error {
		return tx.QueryRow(ctx, t.tables.at(position, sql), args...).Scan(&l.Seq, &l.Stage, &l.Attempt)
	}
	if err = take(0, `DELETE FROM {lease} WHERE id = $1 RETURNING seq, stage, attempt`, id.Number); err != pgx.ErrNoRows {
		return l, err
	}
	if err = take(0, `DELETE FROM {wait} WHERE id = $1 RETURNING seq, stage, attempt`, id.Number); err != pgx.ErrNoRows {
		return l, err
	}
	var order time.Time // ready has no index by id; the last journal row or the task tells its place
	err = tx.QueryRow(ctx, t.tables.at(id.Position(), `
		SELECT coalesce((SELECT j.next_time FROM {journal} j WHERE j.id = t.id ORDER BY j.seq DESC LIMIT 1), t.order_time)
		FROM {task} t WHERE t.id = $1`), id.Number).Scan(&order)
	if err != nil {
		return l, err
	}
	for p := t.Begin; p <= t.End; p++ {
		err = take(p, `DELETE FROM {ready} WHERE order_time = $1 AND id = $2 RETURNING seq, stage, attempt`, order, id.Number)
		if err != pgx.ErrNoRows {
			return l, err
		}
	}
	return l, err
}
