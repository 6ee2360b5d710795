package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/audit"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Cancel ends a task that is not final, whatever its state, and returns it. It doesn't
// interrupt an attempt under way: the worker learns of the cancel by its next heartbeat, and
// its report no longer counts. A task that was already cancelled is returned as it is; one
// that succeeded or failed is CodeConflict.
func (s *Tasks) Cancel(
	ctx context.Context, tenant string, id asyncflow.TaskID, reason string,
) (Task, error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	for range records.CancelTries {
		var cancelled []asyncflow.Settlement
		err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
			return audit.Do(ctx, s.core, t.Tenant, func(tx pgx.Tx) (err error) {
				if t, err = config.RollsNow(ctx, tx, t); err != nil {
					return err
				}
				cancelled, err = trees.CancelAll(ctx, tx, t, []int64{id.Number}, reason,
					s.core.Clock.Now())
				if err == nil && len(cancelled) == 0 {
					return postgres.ErrSame
				}
				return err
			})
		})
		if err != nil && !errors.Is(err, postgres.ErrSame) {
			return Task{}, postgres.Wrap(err, "Cancel(%q, %s)", tenant, id)
		}
		task, err := s.Task(ctx, tenant, id)
		switch {
		case err != nil:
			return Task{}, err
		case len(cancelled) > 0 || task.Status == asyncflow.StatusCancelled:
			hot.AnnounceFreed(ctx, s.hot, t, cancelled)
			s.core.Watchers.Tell(t.Key(), id.Number)
			return task, nil
		case task.Status.Final():
			return Task{}, asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s can't be cancelled: it has %s", id, task.Status)
		}
	}
	return Task{}, trees.TooFast()
}

// takeResting deletes a task's token row from wait or ready. It returns the row as a lease,
// with the reason why it waited and the time since when it had its place; pgx.ErrNoRows when
// it is in neither table.
func takeResting(
	ctx context.Context, tx pgx.Tx, t *config.Type, id asyncflow.TaskID,
) (c hot.Candidate, err error) {
	c.ID = id
	take := func(position int, sql string, args ...any) error {
		err := tx.QueryRow(ctx, t.SQL(position, sql), args...).
			Scan(&c.Seq, &c.Stage, &c.Attempt, &c.OrderTime, &c.Placed, &c.Blocked)
		c.Stage, c.Attempt = t.Mapped(c.Stage, c.Attempt)
		return err
	}
	err = take(0, `DELETE FROM {wait} WHERE type = $2 AND id = $1
		RETURNING seq, stage, attempt, order_time, coalesce(since, order_time), reason`, id.Number,
		t.Number())
	if !errors.Is(err, pgx.ErrNoRows) {
		return c, err
	}
	// there is no index of ready by id: the order_time is in the last journal row or the task.
	var order time.Time
	err = tx.QueryRow(ctx, t.SQL(id.Position(), `
		SELECT coalesce((SELECT j.next_time FROM {journal} j WHERE j.type = t.type AND j.id = t.id
		  ORDER BY j.seq DESC LIMIT 1), t.order_time)
		FROM {task} t WHERE t.type = $2 AND t.id = $1`), id.Number, t.Number()).Scan(&order)
	if err != nil {
		return c, err
	}
	err = pgx.ErrNoRows
	for _, p := range t.Live() {
		err = take(p, `DELETE FROM {ready} WHERE type = $3 AND order_time = $1 AND id = $2
			RETURNING seq, stage, attempt, order_time, coalesce(since, order_time), ''`, order,
			id.Number, t.Number())
		if !errors.Is(err, pgx.ErrNoRows) {
			break
		}
	}
	return c, err
}
