package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

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

// silentClaim is the error of a claim that was released because nothing was heard of it. A late
// report on it still counts: see SettleLate.
const silentClaim = "nothing was heard of the claim"

// queueBlocks records which failed tasks block the others of their flow key, and which no longer
// do.
func queueBlocks(b *pgx.Batch, t *Type, settled []asyncflow.Settlement) {
	if t.Flow == nil || !t.Flow.Ordered {
		return
	}
	for _, settlement := range settled {
		key := t.LineKeyOf(settlement.Lease.Options)
		switch final := settlement.Verdict.Final(); {
		case key == "" || final == "":
		case final == asyncflow.StatusFailed && t.Flow.OnFailure == asyncflow.FlowBlock:
			b.Queue(t.at(0, `INSERT INTO {blocks} (type, key, id) VALUES ($1, $2, $3)
				ON CONFLICT DO NOTHING`), t.Name, key, settlement.Lease.ID.Number)
		default:
			b.Queue(t.at(0, `DELETE FROM {blocks} WHERE type = $1 AND key = $2 AND id = $3`),
				t.Name, key, settlement.Lease.ID.Number)
		}
	}
}
