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
			if err != nil {
				return err
			}
			if len(expired) == 0 {
				return errIdle
			}
			if err := readOptions(ctx, tx, t, expired); err != nil {
				return err
			}
			settled, ts = settleTaken(t, expired, now, lost)
			return writeSettled(ctx, tx, t, settled, ts, now)
		})
	})
	if err != nil || ts == nil {
		return 0, wrap(err, "Rescue(%q, %q)", t.Tenant, t.Name)
	}
	s.announceTakenEnds(ctx, t, settled, ts)
	return len(settled), nil
}

// announceTakenEnds announces and counts settlements of leases that were taken.
func (s *Store) announceTakenEnds(
	ctx context.Context, t *Type, settled []asyncflow.Settlement, ts *tokens,
) {
	s.Wakeups.Announce(t.Key(), ts.earliest)
	s.countSettled(t.Key(), settled...)
	s.freed(ctx, t, settled)
	for _, settlement := range settled {
		s.watched.tell(t.Key(), settlement.Lease.ID.Number)
	}
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
		RETURNING l.id, l.seq, l.stage, l.attempt, l.until, l.leased_at, coalesce(l.claimer, ''),
		  coalesce(l.subject, ''), coalesce(l.unsent, false)`),
		now, JobBatch, t.number)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (l asyncflow.Lease, err error) {
		l.ID.Type = t.Name
		return l, row.Scan(&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.Until, &l.LeasedAt,
			&l.Claimer, &l.Subject, &l.Unsent)
	})
}

// readOptions sets the options of leases.
func readOptions(ctx context.Context, tx pgx.Tx, t *Type, leases []asyncflow.Lease) error {
	b := &pgx.Batch{}
	options := queueOptions(b, t,
		column(leases, func(l *asyncflow.Lease) int64 { return l.ID.Number }))
	err := tx.SendBatch(ctx, b).Close()
	for i := range leases {
		leases[i].Options = options[leases[i].ID.Number]
	}
	return err
}

// optionsOf has the options of those tasks that have some.
type optionsOf map[int64]asyncflow.Options

// queueOptions reads the options of tasks; the map is filled with the batch.
func queueOptions(b *pgx.Batch, t *Type, ids []int64) optionsOf {
	all := optionsOf{}
	for position, ids := range byPosition(ids) {
		b.Queue(t.at(position, `
			SELECT id, options FROM (SELECT t.id, {options} AS options FROM {task} t
			  WHERE t.type = $2 AND t.id = ANY ($1)) t
			WHERE options IS NOT NULL`), ids, t.number).Query(func(rows pgx.Rows) error {
			var id int64
			var o asyncflow.Options
			_, err := pgx.ForEachRow(rows, []any{&id, &o}, func() error {
				all[id], o = o, asyncflow.Options{}
				return nil
			})
			return err
		})
	}
	return all
}

// settleTaken returns the settlements of tasks whose leases were taken, and the token rows that
// follow.
func settleTaken(
	t *Type, taken []asyncflow.Lease, now time.Time,
	outcome func(*Type, asyncflow.Lease) asyncflow.Outcome,
) ([]asyncflow.Settlement, *tokens) {
	settled, ts := make([]asyncflow.Settlement, len(taken)), &tokens{}
	for i, l := range taken {
		l = t.Reordered(l)
		o := outcome(t, l)
		o.Endpoint = asyncflow.ClaimedBy(l.Claimer, l.Subject)
		settled[i] = asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(t.TaskType, l, o, now)}
		if v := settled[i].Verdict; v.Final() == "" {
			ts.add(l.ID.Number, l.Seq+1, t.LineKeyOf(l.Options), v, now, now)
		}
	}
	return settled, ts
}

// silentClaim is the error of a claim that was released because nothing was heard of it. A late
// report on it still counts: see SettleLate.
const silentClaim = "nothing was heard of the claim"

// lost returns the outcome of a lease that has run out.
func lost(t *Type, l asyncflow.Lease) asyncflow.Outcome {
	if t.Unseen(l) {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased,
			Error: silentClaim}
	}
	if l.Unsent {
		return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased,
			Error: "the lease ran out before the task was sent"}
	}
	return asyncflow.Outcome{Kind: asyncflow.OutcomeLost,
		Error: "the lease ran out at " + l.Until.UTC().Format(time.RFC3339) + " without an outcome"}
}

// writeSettled writes settlements at once: see queueSettlements.
func writeSettled(
	ctx context.Context,
	tx pgx.Tx,
	t *Type,
	settled []asyncflow.Settlement,
	ts *tokens,
	now time.Time,
) error {
	b := &pgx.Batch{}
	queueSettlements(b, t, settled, ts, now)
	return tx.SendBatch(ctx, b).Close()
}

// queueSettlements writes the journal rows of settlements whose token rows were taken, the token
// rows that follow, and their tally.
func queueSettlements(
	b *pgx.Batch, t *Type, settled []asyncflow.Settlement, ts *tokens, now time.Time,
) {
	var all rows
	var counts tally
	for i := range settled {
		all.addJournal(t, &settled[i])
		all.addFollowUp(t, &settled[i])
		counts.count(&settled[i])
	}
	all.addTokens(t, ts)
	all.addTally(t, counts)
	all.queue(b, now)
	queueBlocks(b, t, settled)
}
