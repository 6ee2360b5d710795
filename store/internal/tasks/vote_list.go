package tasks

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// Votes are the votes on a task in its latest stage with a quorum.
type Votes struct {
	Cast    []asyncflow.Vote // in the order of their ends
	Outcome json.RawMessage  // that was decided on; nil: there is none
	Late    []asyncflow.Vote // that came after the decision, without their tasks
	Over    bool             // the task no longer waits for votes
}

// Votes returns the votes on a task; CodeConflict if there are none.
func (s *Tasks) Votes(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (v Votes, err error) {
	t, err := s.core.TypeOf(ctx, tenant, id)
	if err != nil {
		return v, err
	}
	o := &records.FanOut{}
	err = s.core.DB(tenant).QueryRow(ctx, t.SQL(0, records.FanOutColumns+`
		WHERE type = $1 AND id = $2 AND rule -> 'quorum' IS NOT NULL ORDER BY seq DESC LIMIT 1`),
		t.Number(), id.Number).Scan(o.Columns()...)
	if err == pgx.ErrNoRows {
		if _, err := s.Task(ctx, tenant, id); err != nil { // there may be no such task
			return v, err
		}
		return v, asyncflow.Errorf(asyncflow.CodeConflict, "task %s has no votes", id)
	}
	if err != nil {
		return v, postgres.Wrap(err, "Votes(%q, %s)", tenant, id)
	}
	b := &pgx.Batch{}
	trees.QueueVotes(b, t, o, &v.Cast)
	b.Queue(t.SQL(0, `SELECT claimer, coalesce(subject, ''), late, at FROM {votes}
		WHERE type = $1 AND key = $2 AND late IS NOT NULL ORDER BY at LIMIT $3`), t.Number(),
		o.VoteKey(), asyncflow.MaxVotes).Query(func(rows pgx.Rows) error {
		late := asyncflow.Vote{Status: asyncflow.StatusSucceeded}
		var outcome string
		into := []any{&late.Claimer, &late.Subject, &outcome, &late.At}
		_, err := pgx.ForEachRow(rows, into, func() error {
			late.Outcome = []byte(outcome)
			v.Late = append(v.Late, late)
			return nil
		})
		return err
	})
	if err = s.core.DB(tenant).Send(ctx, b); err != nil {
		return v, postgres.Wrap(err, "Votes(%q, %s)", tenant, id)
	}
	slices.SortStableFunc(v.Cast, func(a, b asyncflow.Vote) int { return a.At.Compare(b.At) })
	v.Over = o.Closed
	tally := o.Rule.Quorum.Count(v.Cast)
	if v.Over && !o.Stopped {
		tally.DecideAlone()
	}
	if !o.Stopped { // perhaps the task was cancelled before its last vote
		v.Outcome = tally.Outcome()
	}
	return v, nil
}
