package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Rescue ends the leases of a type that ran out. Each gets a journal row, and the verdict decides
// whether the task is tried again. Rescue logs each as an attempt, also one that is released, if
// its task was never sent or nothing was heard of its claim. Its duration is then the time from the
// lease to now. Rescue ends at most JobBatch leases, and returns how many it ended.
func (s *Upkeep) Rescue(ctx context.Context, t *config.Type) (int, error) {
	var settled []asyncflow.Settlement
	var ts *records.Tokens
	var ended time.Time
	err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		settled = nil
		ts = nil
		return s.core.Exclusively(ctx, t.Tenant, "rescue", func(tx pgx.Tx, now time.Time) error {
			if err := postgres.Pin(ctx, tx); err != nil {
				return err
			}
			expired, err := takeExpired(ctx, tx, t, now)
			if err != nil {
				return err
			}
			if len(expired) == 0 {
				return postgres.ErrIdle
			}
			if err := records.ReadOptions(ctx, tx, t, expired); err != nil {
				return err
			}
			outcomes, err := lostOutcomes(ctx, tx, t, expired, now)
			if err != nil {
				return err
			}
			ended = now
			settled, ts = records.SettleTaken(t, expired, now, outcomes)
			return records.WriteSettled(ctx, tx, t, settled, ts, now)
		})
	})
	if err != nil || ts == nil {
		return 0, postgres.Wrap(err, "Rescue(%q, %q)", t.Tenant, t.Name)
	}
	hot.AnnounceTakenEnds(ctx, s.hot, t, settled, ts)
	for _, lost := range settled { // copies: no answer was timed, so the journal gets no duration
		lost.Outcome.Duration = ended.Sub(lost.Lease.LeasedAt)
		asyncflow.LogAttempt(s.core.Log, t.Tenant, lost)
	}
	return len(settled), nil
}

// takeExpired deletes and returns the leases that ran out by the database's clock.
func takeExpired(
	ctx context.Context, tx pgx.Tx, t *config.Type, now time.Time,
) ([]asyncflow.Lease, error) {
	rows, _ := tx.Query(ctx, t.SQL(0, `
		WITH c AS MATERIALIZED (
		  SELECT ctid AS t FROM {lease} WHERE type = $3 AND until < $1
		  ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
		DELETE FROM {lease} l USING c WHERE l.ctid = c.t
		RETURNING l.id, l.seq, l.stage, l.attempt, l.until, l.leased_at, coalesce(l.claimer, ''),
		  coalesce(l.subject, ''), coalesce(l.unsent, false), l.node, coalesce(l.worker, ''),
		  coalesce(l.sent_to, l.endpoint)::text`),
		now, catalog.JobBatch, t.Number())
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
		l.ID.Type = t.Name
		var endpoint *string
		err = row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.Until, &l.LeasedAt,
			&l.Claimer, &l.Subject, &l.Unsent, &l.Node, &l.Worker, &endpoint)
		l.Endpoint = t.RunsAt(l, endpoint)
		return l, err
	})
}

// lostOutcomes returns a function with the outcomes of leases that have run out. For a task that
// may have used up its steps, the outcome has its path.
func lostOutcomes(
	ctx context.Context, tx pgx.Tx, t *config.Type, expired []asyncflow.Lease, now time.Time,
) (outcome func(*config.Type, asyncflow.Lease) asyncflow.Outcome, err error) {
	paths := map[int64][]string{}
	for _, l := range expired {
		o := lost(t, l)
		goesOn := asyncflow.Decide(t.TaskType, l, o, now).Kind == asyncflow.Advance
		if !goesOn || !t.NeedsPath(l, o) {
			continue
		}
		if paths[l.ID.Number], err = hot.Passed(ctx, tx, t, l); err != nil {
			return nil, err
		}
	}
	return func(t *config.Type, l asyncflow.Lease) asyncflow.Outcome {
		o := lost(t, l)
		o.Path = paths[l.ID.Number]
		return o
	}, nil
}

// lost returns the outcome of a lease that ran out.
func lost(t *config.Type, l asyncflow.Lease) asyncflow.Outcome {
	if t.Unseen(l) {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased,
			Error: records.SilentClaim}
	}
	if l.Unsent {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased,
			Error: "the lease ran out before the task was sent"}
	}
	return asyncflow.Outcome{Kind: asyncflow.OutcomeLost,
		Error: "the lease ran out at " + l.Until.UTC().Format(time.RFC3339) + " without an outcome"}
}
