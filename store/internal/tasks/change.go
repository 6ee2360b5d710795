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

// Change changes when a pending or waiting task runs or what its stage gets, and returns the task.
// A precondition of ctx is about the task's ETag. A task that is running or final is CodeConflict.
// A patch of what is so already changes nothing. The priority of a task that waits for its children
// goes down to them, soon after.
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
			verb := "has"
			if task.Status == asyncflow.StatusCancelled {
				verb = "was"
			}
			return Task{}, asyncflow.Errorf(asyncflow.CodeConflict,
				"task %s can't be changed: it %s %s", id, verb, task.Status)
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
	parent := false // the task waits for its children
	err = audit.Do(ctx, s.core, t.Tenant, func(tx pgx.Tx) error {
		t, err := config.RollsNow(ctx, tx, t)
		if err != nil {
			return err
		}
		if err := trees.LockFanOuts(ctx, tx, t, []int64{id.Number}); err != nil {
			return err
		}
		c, err := takeResting(ctx, tx, t, id)
		if err != nil {
			return err
		}
		state, err := readTokenState(ctx, tx, t, id) // it can't change, as we hold the token row
		if err != nil {
			return err
		}
		parent = c.Blocked == asyncflow.WaitChildren
		c.Options = state.options
		if err := checkChange(c, p); err != nil {
			return err
		}
		if p, err = checkEdit(ctx, tx, t, id, p); err != nil {
			return err
		}
		now := s.core.Clock.Now()
		return writeChange(ctx, tx, t, c, p, state, now, ts)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows): // its row just moved, or it is final
		return false, nil
	case errors.Is(err, postgres.ErrSame):
		return true, nil
	case err != nil:
		return false, err
	}
	s.core.Wakeups.Announce(t.Key(), ts.Earliest)
	s.core.Watchers.Tell(t.Key(), id.Number)
	if parent {
		s.core.TellFollowUp(t.Tenant)
	}
	return true, nil
}

// checkChange returns why a waiting or pending task can't be changed like that, or nil.
func checkChange(c hot.Candidate, p asyncflow.Patch) error {
	switch child := c.Options.Child; {
	case c.Blocked == asyncflow.WaitChildren && !p.RunAt.IsZero():
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't run at another time: it waits for its children, and only its "+
				"priority can be changed", c.ID)
	case c.Blocked == asyncflow.WaitChildren && p.Context != nil:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't get another context: it waits for its children, which are made of it",
			c.ID)
	case c.Blocked == asyncflow.WaitChildren && p.Retry != nil:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't get another retry policy: it waits for its children, which have their "+
				"own", c.ID)
	case c.Blocked == asyncflow.WaitChildren && p.Claim != nil:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't get other rules in claim: it waits for its children, which have their "+
				"own", c.ID)
	case c.Blocked == asyncflow.WaitSignal:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't be changed: it waits for a signal", c.ID)
	case c.Blocked == asyncflow.WaitDependencies && p.Context != nil && c.Options.ContextFrom != "":
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't get another context yet: it waits for its dependencies, whose results "+
				"are added to it", c.ID)
	case p.Context != nil && child != nil && child.Vote:
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't get another context: it is a vote, and all votes have the context of "+
				"their task", c.ID)
	case c.Seq > records.MaxSeq:
		return records.JournalFull(c.ID)
	}
	return nil
}

// checkEdit returns a patch without a context that is the present one of the task's stage, byte by
// byte. It refuses another context, retry policy or rules of a task that was given too many.
func checkEdit(
	ctx context.Context, tx pgx.Tx, t *config.Type, id asyncflow.TaskID, p asyncflow.Patch,
) (asyncflow.Patch, error) {
	if p.Context == nil && p.Retry == nil && p.Claim == nil {
		return p, nil
	}
	var same bool
	var edits int
	err := tx.QueryRow(ctx, t.SQL(id.Position(), `
		SELECT coalesce((SELECT j.output FROM {journal} j
		    WHERE j.type = t.type AND j.id = t.id AND j.output IS NOT NULL
		    ORDER BY j.seq DESC LIMIT 1), t.context)::text = $3::text,
		  (SELECT count(*) FROM {journal} j WHERE j.type = t.type AND j.id = t.id
		    AND j.outcome = 'changed'
		    AND (j.output IS NOT NULL OR j.options->'retry' IS NOT NULL
		      OR j.options->'claim' IS NOT NULL))
		FROM {task} t WHERE t.type = $2 AND t.id = $1`), id.Number, t.Number(),
		string(p.Context)).Scan(&same, &edits)
	if err == nil && same {
		p.Context = nil
	}
	if err == nil && edits >= asyncflow.MaxEdits &&
		(p.Context != nil || p.Retry != nil || p.Claim != nil) {
		err = asyncflow.Errorf(asyncflow.CodeConflict,
			"task %s can't get another context, retry policy or rules in claim: it was given %d, "+
				"which is the most", id, edits)
	}
	return p, err
}

// tokenState says since when a task's token row is in its place, and holds the task's options and
// the number of its last journal row.
type tokenState struct {
	at      time.Time
	options asyncflow.Options
	seq     int
}

func readTokenState(
	ctx context.Context, tx pgx.Tx, t *config.Type, id asyncflow.TaskID,
) (p tokenState, err error) {
	err = tx.QueryRow(ctx, t.SQL(id.Position(), `
		SELECT coalesce(l.at, t.created_at), coalesce({options}, '{}'), coalesce(l.seq, 0)
		FROM {task} t, LATERAL (SELECT max(j.at) AS at, max(j.seq) AS seq FROM {journal} j
		  WHERE j.type = t.type AND j.id = t.id) l
		WHERE t.type = $2 AND t.id = $1`), id.Number, t.Number()).Scan(&p.at, &p.options, &p.seq)
	return p, err
}

// writeChange writes the journal row of a change, and the token row that follows.
func writeChange(
	ctx context.Context, tx pgx.Tx, t *config.Type, c hot.Candidate, p asyncflow.Patch,
	state tokenState, now time.Time, ts *records.Tokens,
) error {
	if err := p.CheckLifetime(t.TaskType, c.Lease, now); err != nil {
		return err
	}
	ch, same := trees.ChangeOf(t, c, p, state.at, now)
	if err := audit.CheckPrecondition(ctx, etagOf(c.ID, state.at, state.seq), same); err != nil {
		return err
	}
	if same {
		return postgres.ErrSame
	}
	b := &pgx.Batch{}
	trees.QueueChanges(b, t, []trees.Change{ch}, ts, now)
	ts.Queue(b, t)
	return tx.SendBatch(ctx, b).Close()
}

// patch changes the priority or the time of the pending and waiting tasks among some tasks of one
// roll, as Change does for one, and returns how many are so now. A task that waits for its children
// is without a time of its own, and stays so.
func (st *step) patch(ctx context.Context, tx pgx.Tx, ids []int64) (done int, err error) {
	p := trees.BulkChange{
		Patch:   asyncflow.Patch{Priority: st.o.Priority, RunAt: st.o.RunAt},
		Parents: st.o.Kind == PrioritizeTasks,
	}
	if p.Parents {
		if err := trees.LockFanOuts(ctx, tx, st.t, ids); err != nil {
			return 0, err
		}
		st.now = st.clock() // perhaps children were made since the step began
	}
	done, st.changed, err = trees.ChangeAll(ctx, tx, st.t, ids, p, &st.tokens, st.now)
	if err != nil || st.tokens.Empty() {
		return done, err
	}
	b := &pgx.Batch{}
	st.tokens.Queue(b, st.t)
	return done, tx.SendBatch(ctx, b).Close()
}
