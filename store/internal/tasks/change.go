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

// Change changes when a pending or waiting task runs, and returns the task. A task that is
// running or final is CodeConflict. A patch that the task already has changes nothing.
func (s *Tasks) Change(
	ctx context.Context, tenant string, id asyncflow.TaskID, p asyncflow.Patch,
) (Task, error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return Task{}, err
	}
	for range records.CancelTries {
		var changed bool
		err := s.core.FollowRolls(ctx, t, func(t *config.Type) (err error) {
			changed, err = s.tryChange(ctx, t, id, p)
			return err
		})
		if err != nil {
			return Task{}, postgres.Wrap(err, "Change(%q, %s)", tenant, id)
		}
		task, err := s.Task(ctx, tenant, id)
		switch {
		case err != nil || changed:
			return task, err
		case task.Status.Final():
			return Task{}, asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s can't be changed: it has %s", id, task.Status)
		case task.Status == asyncflow.StatusRunning:
			return Task{}, asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s can't be changed: it is running", id)
		}
	}
	return Task{}, trees.TooFast()
}

// tryChange takes the task's token row from wait or ready, if it is still there, and inserts
// the row that follows from the patch.
func (s *Tasks) tryChange(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, p asyncflow.Patch,
) (changed bool, err error) {
	ts := &records.Tokens{}
	err = audit.Do(ctx, s.core, t.Tenant, func(tx pgx.Tx) error {
		t, err := config.RollsNow(ctx, tx, t)
		if err != nil {
			return err
		}
		c, err := takeResting(ctx, tx, t, id)
		if err != nil {
			return err
		}
		state, err := readTokenState(ctx, tx, t, id) // it can't change, as we have the token row
		if err != nil {
			return err
		}
		switch c.Blocked {
		case asyncflow.WaitChildren:
			return asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s can't be changed: it waits for its children", id)
		case asyncflow.WaitSignal:
			return asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s can't be changed: it waits for a signal", id)
		}
		if c.Seq > records.MaxSeq {
			return records.JournalFull(id)
		}
		c.Options = state.options
		now := s.core.Clock.Now()
		return writeChange(ctx, tx, t, c, p, state.at, now, ts)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows): // its row has just moved, or it is final
		return false, nil
	case errors.Is(err, postgres.ErrSame):
		return true, nil
	case err != nil:
		return false, err
	}
	s.core.Wakeups.Announce(t.Key(), ts.Earliest)
	s.core.Watchers.Tell(t.Key(), id.Number)
	return true, nil
}

// tokenState says since when a task's token row has had its place, and has the task's options.
type tokenState struct {
	at      time.Time
	options asyncflow.Options
}

func readTokenState(
	ctx context.Context, tx pgx.Tx, t *config.Type, id asyncflow.TaskID,
) (p tokenState, err error) {
	err = tx.QueryRow(ctx, t.SQL(id.Position(), `
		SELECT coalesce((SELECT max(at) FROM {journal} j WHERE j.type = t.type AND j.id = t.id),
		    t.created_at),
		  coalesce({options}, '{}')
		FROM {task} t WHERE t.type = $2 AND t.id = $1`), id.Number, t.Number()).Scan(&p.at,
		&p.options)
	return p, err
}

// writeChange writes the journal row of a change, and the token row that follows.
func writeChange(
	ctx context.Context, tx pgx.Tx, t *config.Type, c hot.Candidate, p asyncflow.Patch,
	at, now time.Time, ts *records.Tokens,
) error {
	ch, same := changeOf(t, c, p, at, now)
	if same {
		return postgres.ErrSame
	}
	b := &pgx.Batch{}
	ch.queue(b, t, ts, now)
	ts.Queue(b, t)
	return tx.SendBatch(ctx, b).Close()
}

// change is what follows from a patch of a task whose token row is c.
type change struct {
	hot.Candidate
	verdict asyncflow.Verdict
	options *string   // the new ones; nil: the same as before
	from    time.Time // since when the task has its place
}

// changeOf returns what follows from a patch, and reports whether that is the same as before. at is
// when the token row was written.
func changeOf(
	t *config.Type, c hot.Candidate, p asyncflow.Patch, at, now time.Time,
) (ch change, same bool) {
	l := c.Lease
	v := asyncflow.Verdict{Kind: asyncflow.Retry, Stage: l.Stage, Attempt: l.Attempt,
		OrderTime: p.Order(t.TaskType, l, at, now), Reason: asyncflow.WaitDelay}
	placed := now
	if p.RunAt.IsZero() {
		placed = c.Placed
	}
	others := c.Blocked.ForOthers()
	if (p.RunAt.IsZero() || others) && c.Blocked != "" { // it still waits for the same reason
		v.Reason = c.Blocked
		if c.Blocked == asyncflow.WaitEndpoint || others {
			v.Kind = asyncflow.Park
		}
	}
	before := hot.OptionsText(l.Options)
	after := hot.OptionsText(p.Options(l.Options))
	sameOptions := (before == nil) == (after == nil) && (before == nil || *before == *after)
	if sameOptions {
		after = nil
	}
	return change{c, v, after, placed}, sameOptions && v.OrderTime.Equal(l.OrderTime)
}

// queue adds the journal row to a batch, and the token row to ts. The journal row keeps the error
// of the previous attempt.
func (ch change) queue(b *pgx.Batch, t *config.Type, ts *records.Tokens, now time.Time) {
	l := ch.Lease
	b.Queue(t.SQL(l.ID.Position(), `
		INSERT INTO {journal} (id, seq, at, stage, attempt, outcome, next_time, options, error,
		  type)
		VALUES ($1, $2::smallint, $3, $4, $5, 'changed', $6, $7::text::json,
		  (SELECT error FROM {journal} WHERE type = $8 AND id = $1
		    AND seq = $2::smallint - 1), $8)`),
		l.ID.Number, l.Seq, now, l.Stage, l.Attempt, ch.verdict.OrderTime, ch.options, t.Number())
	ts.Add(l.ID.Number, l.Seq+1, t.LineKeyOf(l.Options), ch.verdict, ch.from, now)
}
