package store

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Votes are the votes on a task in its latest stage with a quorum.
type Votes struct {
	Cast    []asyncflow.Vote // in the order of their ends
	Outcome json.RawMessage  // that was decided on; nil: there is none
	Late    []asyncflow.Vote // that came after the decision, without their tasks
	Over    bool             // the task no longer waits for votes
}

// Votes returns the votes on a task; CodeConflict if it has none.
func (s *Store) Votes(
	ctx context.Context, tenant string, id asyncflow.TaskID,
) (v Votes, err error) {
	t, err := s.TypeOf(ctx, tenant, id)
	if err != nil {
		return v, err
	}
	o := &fanOut{}
	err = s.of(tenant).QueryRow(ctx, t.at(0, fanOutColumns+`
		WHERE type = $1 AND id = $2 AND rule -> 'quorum' IS NOT NULL ORDER BY seq DESC LIMIT 1`),
		t.number, id.Number).Scan(o.columns()...)
	if err == pgx.ErrNoRows {
		if _, err := s.Task(ctx, tenant, id); err != nil { // there may be no such task
			return v, err
		}
		return v, asyncflow.Errorf(asyncflow.CodeConflict, "task %s has no votes", id)
	}
	if err != nil {
		return v, wrap(err, "Votes(%q, %s)", tenant, id)
	}
	b := &pgx.Batch{}
	queueVotes(b, t, o, &v.Cast)
	b.Queue(t.at(0, `SELECT claimer, coalesce(subject, ''), late, at FROM {votes}
		WHERE type = $1 AND key = $2 AND late IS NOT NULL ORDER BY at LIMIT $3`), t.number, o.voteKey(),
		asyncflow.MaxVotes).Query(func(rows pgx.Rows) error {
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
	if err = s.of(tenant).Send(ctx, b); err != nil {
		return v, wrap(err, "Votes(%q, %s)", tenant, id)
	}
	slices.SortStableFunc(v.Cast, func(a, b asyncflow.Vote) int { return a.At.Compare(b.At) })
	v.Over = o.closed
	tally := o.rule.Quorum.Count(v.Cast)
	if v.Over && !o.stopped {
		tally.DecideAlone()
	}
	if !o.stopped { // the task may have been cancelled before its last vote
		v.Outcome = tally.Outcome()
	}
	return v, nil
}
