package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Rescue ends the leases of a type that have run out. Each gets a journal row, and the verdict
// decides whether the task is tried again. Rescue ends at most JobBatch leases and returns
// how many it ended.
func (s *Store) Rescue(ctx context.Context, t *Type) (int, error) {
	var settled []asyncflow.Settlement
	var ts *tokens
	err := s.following(ctx, t, func(t *Type) error {
		return s.exclusively(ctx, t.Tenant, "rescue", func(tx pgx.Tx, now time.Time) error {
			expired, err := takeExpired(ctx, tx, t, now)
			if err != nil || len(expired) == 0 {
				return err
			}
			if err := readOptions(ctx, tx, t, expired); err != nil {
				return err
			}
			settled, ts = s.lostLeases(t, expired, now)
			return writeSettled(ctx, tx, t, settled, ts, now)
		})
	})
	if err != nil || ts == nil {
		return 0, wrap(err, "Rescue(%q, %q)", t.Tenant, t.Name)
	}
	s.Wakeups.Announce(t.Key(), ts.earliest)
	s.countSettled(t.Key(), settled...)
	s.freed(ctx, t, settled)
	for _, settlement := range settled {
		s.watched.tell(t.Key(), settlement.Lease.ID.Number)
	}
	return len(settled), nil
}

// takeExpired deletes and returns the leases that have run out by the database's clock.
func takeExpired(
	ctx context.Context,
	tx pgx.Tx,
	t *Type,
	now time.Time,
) ([]asyncflow.Lease, error) {
	rows, err := tx.Query(ctx, t.at(0, `
		WITH c AS MATERIALIZED (
		  SELECT ctid AS t FROM {lease} WHERE type = $3 AND until < $1
		  ORDER BY id LIMIT $2 FOR UPDATE SKIP LOCKED)
		DELETE FROM {lease} l USING c WHERE l.ctid = c.t
		RETURNING l.id, l.seq, l.stage, l.attempt, l.until, l.leased_at, coalesce(l.claimer, '')`), now, JobBatch, t.number)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
		l.ID.Type = t.Name
		return l, row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.Until, &l.LeasedAt,
			&l.Claimer)
	})
}

// readOptions sets the options of those leases whose tasks have some.
func readOptions(ctx context.Context, tx pgx.Tx, t *Type, leases []asyncflow.Lease) error {
	byPosition := map[int][]int64{}
	byID := map[int64]*asyncflow.Lease{}
	for i := range leases {
		id := leases[i].ID
		byPosition[id.Position()] = append(byPosition[id.Position()], id.Number)
		byID[id.Number] = &leases[i]
	}
	for position, ids := range byPosition {
		rows, err := tx.Query(ctx, t.at(position, `
			SELECT id, options FROM (SELECT t.id, {options} AS options FROM {task} t
			  WHERE t.type = $2 AND t.id = ANY ($1)) t
			WHERE options IS NOT NULL`), ids, t.number)
		if err != nil {
			return err
		}
		var id int64
		var o asyncflow.Options
		if _, err := pgx.ForEachRow(rows, []any{&id, &o}, func() error {
			byID[id].Options = o
			o = asyncflow.Options{}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// lostLeases returns the settlements of tasks whose leases ran out, and the token rows that
// follow.
func (s *Store) lostLeases(
	t *Type,
	expired []asyncflow.Lease,
	now time.Time,
) ([]asyncflow.Settlement, *tokens) {
	settled, ts := make([]asyncflow.Settlement, len(expired)), &tokens{}
	for i, l := range expired {
		l = t.Reordered(l)
		o := asyncflow.Outcome{Kind: asyncflow.OutcomeLost, Endpoint: asyncflow.ClaimedBy(l.Claimer),
			Error: "the lease ran out at " + l.Until.UTC().Format(time.RFC3339) + " without an outcome"}
		if t.Unseen(l) {
			o.Kind, o.Error = asyncflow.OutcomeReleased, "nothing was heard of the claim"
		}
		settled[i] = asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(t.TaskType, l, o, now)}
		if v := settled[i].Verdict; v.Final() == "" {
			ts.add(l.ID.Number, l.Seq+1, t.FlowKeyOf(l.Options), v, now, now)
		}
	}
	return settled, ts
}

// writeSettled writes the journal rows of settlements whose token rows were taken, the token
// rows that follow, and their tally.
func writeSettled(
	ctx context.Context,
	tx pgx.Tx,
	t *Type,
	settled []asyncflow.Settlement,
	ts *tokens,
	now time.Time,
) error {
	var all rows
	var counts tally
	for i := range settled {
		all.addJournal(t, &settled[i])
		all.addFollowUp(t, &settled[i])
		counts.count(&settled[i])
	}
	all.addTokens(t, ts)
	all.addTally(t, counts)
	b := &pgx.Batch{}
	all.queue(b, now)
	queueBlocks(b, t, settled)
	return tx.SendBatch(ctx, b).Close()
}
