package records

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// SettleTaken returns the settlements of taken leases, and the token rows that follow.
func SettleTaken(
	t *config.Type, taken []asyncflow.Lease, now time.Time,
	outcome func(*config.Type, asyncflow.Lease) asyncflow.Outcome,
) ([]asyncflow.Settlement, *Tokens) {
	settled := make([]asyncflow.Settlement, len(taken))
	ts := &Tokens{}
	for i, l := range taken {
		l = t.Reordered(l)
		o := outcome(t, l)
		o.Endpoint = asyncflow.ClaimedBy(l.Claimer, l.Subject)
		if o.Kind == asyncflow.OutcomeLost && o.Endpoint == "" {
			o.Endpoint = t.EndpointURL(l.Endpoint)
		}
		settled[i] = asyncflow.Settlement{Lease: l, Outcome: o,
			Verdict: asyncflow.Decide(t.TaskType, l, o, now)}
		if v := settled[i].Verdict; v.Final() == "" {
			ts.Add(l.ID.Number, l.Seq+1, t.LineKeyOf(l.Options), v, now, now)
		}
	}
	return settled, ts
}

// WriteSettled writes settlements at once: see QueueSettlements.
func WriteSettled(
	ctx context.Context, tx pgx.Tx, t *config.Type, settled []asyncflow.Settlement, ts *Tokens,
	now time.Time,
) error {
	b := &pgx.Batch{}
	QueueSettlements(b, t, settled, ts, now)
	return tx.SendBatch(ctx, b).Close()
}

// QueueSettlements writes the journal rows of settlements with taken token rows, the token rows
// that follow, and their tally.
func QueueSettlements(
	b *pgx.Batch, t *config.Type, settled []asyncflow.Settlement, ts *Tokens, now time.Time,
) {
	var all Inserts
	var counts Tally
	for i := range settled {
		all.AddJournal(t, &settled[i])
		all.AddFollowUp(t, &settled[i])
		counts.Count(&settled[i])
	}
	all.AddTokens(t, ts)
	all.AddTally(t, counts)
	all.Queue(b, now)
	QueueBlocks(b, t, settled)
}

// SilentClaim is the error of a claim that was released because nothing was heard of it. A late
// report on it still counts: see SettleLate.
const SilentClaim = "nothing was heard of the claim"

// QueueBlocks records which failed or snoozed tasks block later tasks of their flow key, and which
// no longer do. A task that was snoozed in its first attempt has the number -id, and blocks only
// while it is live: its token row doesn't show that it has begun.
func QueueBlocks(b *pgx.Batch, t *config.Type, settled []asyncflow.Settlement) {
	if t.Flow == nil || !t.Flow.Ordered {
		return
	}
	for _, settlement := range settled {
		l := &settlement.Lease
		key := t.LineKeyOf(l.Options)
		switch final := settlement.Verdict.Final(); {
		case key == "":
		case final == "":
			if settlement.Snoozes() && !t.Started(l.Stage, l.Attempt) && !config.Parks(t) {
				queueBlock(b, t, key, -l.ID.Number)
			}
		case final == asyncflow.StatusFailed && t.Flow.OnFailure == asyncflow.FlowBlock:
			queueBlock(b, t, key, l.ID.Number)
			queueUnblock(b, t, key, -l.ID.Number)
		default:
			queueUnblock(b, t, key, l.ID.Number, -l.ID.Number)
		}
	}
}

func queueBlock(b *pgx.Batch, t *config.Type, key string, id int64) {
	b.Queue(t.SQL(0, `INSERT INTO {blocks} (type, key, id) VALUES ($1, $2, $3)
		ON CONFLICT DO NOTHING`), t.Name, key, id)
}

func queueUnblock(b *pgx.Batch, t *config.Type, key string, ids ...int64) {
	b.Queue(t.SQL(0, `DELETE FROM {blocks} WHERE type = $1 AND key = $2 AND id = ANY ($3)`), t.Name,
		key, ids)
}
