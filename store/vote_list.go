package store

import (
	"context"
	"encoding/json"
	"slices"
	"time"

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

// LateVotesKept is how long a late vote is kept.
const LateVotesKept = 7 * 24 * time.Hour

// Votes returns the votes on a task; CodeConflict if it has none.
func (s *Store) Votes(ctx context.Context, tenant string, id asyncflow.TaskID) (v Votes, err error) {
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
	b.Queue(t.at(0, `SELECT claimer, late, at FROM {votes}
		WHERE type = $1 AND key = $2 AND late IS NOT NULL ORDER BY at LIMIT $3`), t.number, o.voteKey(),
		asyncflow.MaxVotes).Query(func(rows pgx.Rows) error {
		late := asyncflow.Vote{Status: asyncflow.StatusSucceeded}
		var outcome string
		_, err := pgx.ForEachRow(rows, []any{&late.Claimer, &outcome, &late.At}, func() error {
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

// LateVote records the vote of a claimer on the parent of a task, if that was decided before, and
// reports whether it was. Of several late votes of a claimer on a task the first one stays.
func (s *Store) LateVote(
	ctx context.Context, t *Type, id asyncflow.TaskID, claimer string, output []byte,
) (decided bool, err error) {
	b := &pgx.Batch{}
	options := queueOptions(b, t, []int64{id.Number})
	if err = s.of(t.Tenant).Send(ctx, b); err != nil {
		return false, wrap(err, "LateVote(%s)", id)
	}
	child := options[id.Number].Child
	if child.VoteKey() == "" {
		return false, nil
	}
	o, err := latestFanOut(ctx, s.of(t.Tenant), t, child.Parent, child.Seq, "")
	if err != nil || o == nil || !o.closed || o.stopped {
		return false, wrap(err, "LateVote(%s)", id)
	}
	outcome := o.rule.Quorum.Outcome(output)
	if outcome == nil {
		return true, nil
	}
	now := s.Clock.Now()
	_, err = s.of(t.Tenant).Exec(ctx, t.at(0, `
		INSERT INTO {votes} (type, claimer, key, late, at, until) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT DO NOTHING`), t.number, claimer, child.VoteKey(), string(outcome), now,
		now.Add(LateVotesKept))
	return true, wrap(err, "LateVote(%s)", id)
}
