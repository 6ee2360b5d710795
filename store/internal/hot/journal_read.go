package hot

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// Written returns the outcome in the journal for a task's seq, or "". It is durable then.
func (s *Path) Written(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int,
) (kind asyncflow.OutcomeKind, err error) {
	err = s.core.DB(t.Tenant).QueryRow(ctx,
		t.SQL(id.Position(), `SELECT outcome FROM {journal}
		WHERE type = $3 AND id = $1 AND seq = $2`), id.Number, seq, t.Number()).Scan(&kind)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return kind, postgres.Wrap(err, "Written(%s, %d)", id, seq)
	}
	err = s.core.ConfirmHot(ctx, t.Tenant)
	return kind, postgres.Wrap(err, "Written(%s, %d)", id, seq)
}

// sameOutcome compares a journal row with an outcome ($3), its output ($4, NULL for none) and the
// names of the stage that it chose ($5, NULL for none). Outcomes "done" are the same only with the
// same output, byte for byte, and if the task went on with the chosen stage, or the error says
// why it could not. It is null if WentTo is.
const sameOutcome = `outcome = $3 AND (outcome <> 'done' OR output IS NOT DISTINCT FROM $4::text
	AND ($5::text[] IS NULL OR j.error IS NOT NULL OR ` + WentTo + ` = ANY ($5)))`

// WentTo is the stage with which a task went on after the row j of its journal; empty if it ended.
// Whatever becomes of the next token row, a row with its stage has the next seq. It is null if that
// row is in a ready table that this node doesn't know: see config.ErrElsewhere.
const WentTo = `CASE WHEN final IS NOT NULL THEN '' ELSE coalesce(
	(SELECT stage FROM {journal} n WHERE n.type = j.type AND n.id = j.id AND n.seq = j.seq + 1),
	(SELECT stage FROM {lease} n WHERE n.type = j.type AND n.id = j.id AND n.seq = j.seq + 1),
	(SELECT stage FROM {wait} n WHERE n.type = j.type AND n.id = j.id AND n.seq = j.seq + 1),
	(SELECT stage FROM {readies} n WHERE n.type = j.type AND n.order_time = j.next_time
	  AND n.id = j.id AND n.seq = j.seq + 1 LIMIT 1)) END`

// WrittenAs is Written, and also reports whether the journal's outcome is o: it has the
// same kind and, if the stage was done, the same output, byte for byte, and started the same tasks.
func (s *Path) WrittenAs(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome,
) (kind asyncflow.OutcomeKind, same bool, err error) {
	kind, same, err = s.writtenAs(ctx, t, id, seq, o)
	if err == nil && kind != "" {
		err = s.core.ConfirmHot(ctx, t.Tenant)
		err = postgres.Wrap(err, "WrittenAs(%s, %d)", id, seq)
	}
	return kind, same, err
}

// writtenAs is WrittenAs without waiting for a synchronous standby. Postgres compares the outputs,
// so that the journal's isn't sent.
func (s *Path) writtenAs(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome,
) (kind asyncflow.OutcomeKind, same bool, err error) {
	err = s.core.FollowRolls(ctx, t, func(t *config.Type) (err error) {
		kind, same, err = scanSame(s.core.DB(t.Tenant).QueryRow(ctx,
			t.SQL(id.Position(), `SELECT outcome, `+sameOutcome+` FROM {journal} j
				WHERE type = $6 AND id = $1 AND seq = $2`),
			id.Number, seq, string(o.Kind), postgres.OrNull(string(o.Output)), t.Chosen(o),
			t.Number()))
		return err
	})
	if err == nil && same {
		same, err = sameSpawn(ctx, s.core.DB(t.Tenant), t, id.Number, seq, o)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return kind, same, postgres.Wrap(err, "WrittenAs(%s, %d)", id, seq)
}

// scanSame reads an outcome and sameOutcome. The error is ErrElsewhere if it isn't known where the
// task went: its token row is in a ready table that this node doesn't know.
func scanSame(row pgx.Row) (kind asyncflow.OutcomeKind, same bool, err error) {
	var is *bool
	err = row.Scan(&kind, &is)
	if err == nil && is == nil {
		err = config.ErrElsewhere
	}
	return kind, err == nil && *is, err
}

// FirstSent returns when a task was delivered in the stage of a lease for the first time, since it
// was submitted or redriven last, in this visit of the stage.
func (s *Path) FirstSent(
	ctx context.Context, t *config.Type, l asyncflow.Lease,
) (at time.Time, err error) {
	if l.Seq == 1 { // it is the task's first delivery
		return l.LeasedAt, nil
	}
	at, err = firstSent(ctx, s.core.DB(t.Tenant), t, l)
	return at, postgres.Wrap(err, "FirstSent(%s)", l.ID)
}

func firstSent(
	ctx context.Context, db postgres.Querier, t *config.Type, l asyncflow.Lease,
) (at time.Time, err error) {
	err = db.QueryRow(ctx, t.SQL(l.ID.Position(), `
		SELECT at - make_interval(secs => coalesce(duration, 0)) FROM {journal}
		WHERE type = $1 AND id = $2 AND stage = $3 AND outcome = ANY ($4) AND seq > coalesce((
		  SELECT seq FROM {journal} WHERE type = $1 AND id = $2 AND seq < $5
		    AND (final IS NOT NULL OR outcome IN ('done', 'joined', 'signalled'))
		  ORDER BY seq DESC LIMIT 1), -1)
		ORDER BY seq LIMIT 1`), t.Number(), l.ID.Number, l.Stage, deliveredOutcomes, l.Seq).
		Scan(&at)
	if errors.Is(err, pgx.ErrNoRows) {
		return l.LeasedAt, nil
	}
	return at, err
}

// deliveredOutcomes are the outcomes of attempts that were delivered.
var deliveredOutcomes = []string{string(asyncflow.OutcomeFailed), string(asyncflow.OutcomeLost),
	string(asyncflow.OutcomeSnoozed)}

// Passed returns the stages that a task has passed, or left as failed, since it was submitted or
// redriven last, in order.
func (s *Path) Passed(ctx context.Context, t *config.Type, l asyncflow.Lease) ([]string, error) {
	path, err := Passed(ctx, s.core.DB(t.Tenant), t, l)
	return path, postgres.Wrap(err, "Passed(%s)", l.ID)
}

// WaitsThen reports whether the attempt in the row j of a journal started tasks for which its task
// waited then, in the same stage.
const WaitsThen = `(j.outcome = 'done' AND EXISTS (SELECT FROM {fan_outs} f
	WHERE f.type = j.type AND f.id = j.id AND f.seq = j.seq + 1))`

// Passed is Path.Passed in a transaction.
func Passed(
	ctx context.Context, db postgres.Querier, t *config.Type, l asyncflow.Lease,
) ([]string, error) {
	path := []string{} // not nil: it was read
	err := db.QueryRow(ctx, t.SQL(l.ID.Position(), `
		SELECT coalesce(array_agg(stage ORDER BY seq), '{}') FROM (
		  SELECT seq, stage, outcome, lead(stage, 1, $4) OVER (ORDER BY seq) AS next,
		    `+WaitsThen+` AS waits
		  FROM {journal} j
		  WHERE type = $1 AND id = $2 AND seq < $3 AND final IS NULL AND seq > coalesce((
		    SELECT max(seq) FROM {journal}
		    WHERE type = $1 AND id = $2 AND final <> 'succeeded'), -1)) j
		WHERE outcome IN ('joined', 'signalled')
		  OR outcome = 'done' AND NOT waits
		  OR next <> stage AND outcome IN ('failed', 'rejected', 'lost', 'snoozed', 'timed_out')`),
		t.Number(), l.ID.Number, l.Seq, l.Stage).Scan(&path)
	return path, err
}
