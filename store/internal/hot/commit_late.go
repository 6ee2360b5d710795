package hot

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// SettleLate accepts the outcome of an attempt with a lost lease, or of a silent claim, if the task
// was not started again. It takes the token row that the rescue left, and settles with that row's
// seq but with the number of the lost attempt.
//
// taken reports whether the outcome counts: it was accepted now, or the same report was accepted
// before. written is the settlement if it was accepted now. If another outcome of this attempt was
// accepted before, the error is CodeConflict.
func (s *Path) SettleLate(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome,
) (written []asyncflow.Settlement, taken bool, err error) {
	var ts *records.Tokens
	err = s.core.FollowRolls(ctx, t, func(now *config.Type) error {
		ts = &records.Tokens{}
		written, taken, err = s.trySettleLate(ctx, now, id, seq, o, ts)
		return err
	})
	if err == pgx.ErrNoRows { // no such lost attempt
		return nil, false, nil
	}
	if err != nil {
		return nil, false, postgres.Wrap(err, "SettleLate(%s, %d)", id, seq)
	}
	s.core.Wakeups.Announce(t.Key(), ts.Earliest)
	s.core.CountSettled(t.Key(), written...)
	AnnounceFreed(ctx, s, t, written)
	s.core.Watchers.Tell(t.Key(), id.Number)
	return written, taken, nil
}

func (s *Path) trySettleLate(
	ctx context.Context, t *config.Type, id asyncflow.TaskID, seq int, o asyncflow.Outcome,
	ts *records.Tokens,
) (written []asyncflow.Settlement, taken bool, err error) {
	err = pgx.BeginFunc(ctx, s.core.DB(t.Tenant), func(tx pgx.Tx) error {
		l, orderTime, err := lostAttempt(ctx, tx, t, id, seq)
		if err != nil {
			return err
		}
		if l.Claimer != "" {
			o.Endpoint = t.ReportedBy(l)
		}
		if taken, err = reportedLate(ctx, tx, t, l, o); err != nil {
			return err
		}
		if taken {
			return s.core.Confirm(ctx, tx, t.Tenant)
		}
		if t, err = config.RollsNow(ctx, tx, t); err != nil {
			return err
		}
		leases := []asyncflow.Lease{l}
		if err := records.ReadOptions(ctx, tx, t, leases); err != nil {
			return err
		}
		if may, err := mayVote(ctx, tx, t, leases[0], o); err != nil || !may {
			return err
		}
		if taken, err = takeToken(ctx, tx, t, l, orderTime); err != nil || !taken {
			return err
		}
		if err := t.CheckStep(leases[0], o); err != nil { // it may report again: the token stays
			return err
		}
		if err := t.CheckSpawn(leases[0], o); err != nil {
			return err
		}
		now := s.core.Clock.Now()
		if o.Kind == asyncflow.OutcomeSnoozed {
			l.LeasedAt = now // perhaps no delivery is in the journal: a silent claim is none
			if o.FirstSent, err = firstSent(ctx, tx, t, l); err != nil {
				return err
			}
		}
		if t.NeedsPath(l, o) {
			if o.Path, err = Passed(ctx, tx, t, l); err != nil {
				return err
			}
		}
		v := asyncflow.Decide(t.TaskType, leases[0], o, now)
		if v.Final() == "" {
			ts.Add(id.Number, l.Seq+1, t.LineKeyOf(leases[0].Options), v, now, now)
		}
		written = []asyncflow.Settlement{{Lease: leases[0], Outcome: o, Verdict: v}}
		b := &pgx.Batch{}
		records.QueueSettlements(b, t, written, ts, now)
		if v.Final() != "" {
			queueAddLateVoter(b, t, leases[0], o)
		}
		return tx.SendBatch(ctx, b).Close()
	})
	return written, taken, err
}

// lostAttempt returns a lost attempt in the form of a new lease, with the seq of the row that the
// rescue left, and that row's place in the order.
func lostAttempt(
	ctx context.Context, tx pgx.Tx, t *config.Type, id asyncflow.TaskID, seq int,
) (l asyncflow.Lease, orderTime time.Time, err error) {
	l.ID = id
	l.Seq = seq + 1
	endpoint := ""
	err = tx.QueryRow(ctx, t.SQL(id.Position(), `
		SELECT stage, attempt, next_time, coalesce(endpoint, '') FROM {journal}
		WHERE type = $3 AND id = $1 AND seq = $2 AND final IS NULL
		  AND (outcome = 'lost' OR outcome = 'released' AND error = $4)`), id.Number, seq,
		t.Number(), records.SilentClaim).
		Scan(&l.Stage, &l.Attempt, &orderTime, &endpoint)
	endpoint, l.Node, l.Worker = asyncflow.ParseRunLocation(endpoint)
	l.Claimer, l.Subject = asyncflow.ClaimerOf(endpoint)
	return l, orderTime, err
}

// reportedLate reports whether the same report was accepted before: then the row of the next seq
// bears the number and the claimer of the lost attempt. After a claim that was released, the next
// attempt bears the number, too, but most often another claimer. If that row is of another outcome,
// the error says so.
func reportedLate(
	ctx context.Context, tx pgx.Tx, t *config.Type, l asyncflow.Lease, o asyncflow.Outcome,
) (same bool, err error) {
	claimed := ""
	if l.Claimer != "" {
		claimed = o.Endpoint
	}
	kind, same, err := scanSame(tx.QueryRow(ctx, t.SQL(l.ID.Position(), `
		SELECT outcome, `+sameOutcome+` FROM {journal} j
		WHERE type = $8 AND id = $1 AND seq = $2 AND attempt = $6 AND stage = $7
		  AND outcome IN ('done', 'rejected', 'failed', 'snoozed') AND ($9 = ''
		    OR split_part(endpoint, E'\x1e', 1) IN ($9, $9 || ' '))`),
		l.ID.Number, l.Seq, string(o.Kind), postgres.OrNull(string(o.Output)), t.Chosen(o),
		l.Attempt, l.Stage, t.Number(), claimed))
	if err == nil && same {
		same, err = sameSpawn(ctx, tx, t, l.ID.Number, l.Seq, o)
	}
	switch {
	case err == pgx.ErrNoRows:
		return false, nil
	case err == nil && !same:
		return false, OtherOutcome(kind, o)
	}
	return same, err
}

// OtherOutcome returns the error of a report o for an attempt that ended with another outcome,
// written.
func OtherOutcome(written asyncflow.OutcomeKind, o asyncflow.Outcome) error {
	if written == o.Kind {
		return asyncflow.Errorf(asyncflow.CodeConflict,
			"this attempt is over: it ended as %q with another output, another next stage or "+
				"other tasks to start, which counts", written)
	}
	return asyncflow.Errorf(asyncflow.CodeConflict, "this attempt is over: it ended as %q", written)
}

// takeToken deletes the token row of a task that is not leased. A claim may take the row meanwhile,
// and put it back: then it is looked for again.
func takeToken(
	ctx context.Context, tx pgx.Tx, t *config.Type, l asyncflow.Lease, orderTime time.Time,
) (taken bool, err error) {
	for range records.CancelTries {
		stands := false
		if taken, err = tryTakeToken(ctx, tx, t, l, orderTime); err != nil || taken {
			return taken, err
		}
		err = tx.QueryRow(ctx, t.SQL(0, `SELECT EXISTS (SELECT FROM {wait}
			WHERE type = $1 AND id = $2 AND seq = $3)`), t.Number(), l.ID.Number,
			l.Seq).Scan(&stands)
		if err != nil || !stands {
			return false, err
		}
	}
	return false, nil
}

func tryTakeToken(
	ctx context.Context, tx pgx.Tx, t *config.Type, l asyncflow.Lease, orderTime time.Time,
) (bool, error) {
	tag, err := tx.Exec(ctx, t.SQL(0, `DELETE FROM {wait}
		WHERE type = $3 AND id = $1 AND seq = $2`), l.ID.Number, l.Seq, t.Number())
	for _, p := range t.Live() {
		if err != nil || tag.RowsAffected() > 0 {
			break
		}
		tag, err = tx.Exec(ctx, t.SQL(p,
			`DELETE FROM {ready} WHERE type = $4 AND order_time = $1 AND id = $2 AND seq = $3`),
			orderTime, l.ID.Number, l.Seq, t.Number())
	}
	return err == nil && tag.RowsAffected() == 1, err
}
