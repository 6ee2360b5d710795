package claims

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// TakeClaimsSQL ends claims that stand as they were handed out: whatever is heard of one, or a
// later answer with it, moves its end. For the form see records.TakeAnyWaitSQL.
const TakeClaimsSQL = `
DELETE FROM {lease} l
USING (SELECT $4::int AS type, u.*
  FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[]) AS u (id, seq, until) OFFSET 0) u
WHERE l.type = ANY (ARRAY[u.type]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
  AND l.until = u.until
RETURNING l.id`

// TakeBackClaims puts tasks of a type back in line that could not be handed to their claimer, and
// returns how many. A claim stays if a report of it came, or if it was handed out again meanwhile:
// its claimer has it by another answer, under the same seq.
func (s *Claims) TakeBackClaims(
	ctx context.Context, t *config.Type, leases []asyncflow.Lease, why string,
) (int, error) {
	var settled []asyncflow.Settlement
	var ts *records.Tokens
	err := s.core.FollowRolls(ctx, t, func(t *config.Type) error {
		settled = nil
		ts = nil
		return pgx.BeginFunc(ctx, s.core.DB(t.Tenant), func(tx pgx.Tx) error {
			if err := postgres.Pin(ctx, tx); err != nil {
				return err
			}
			taken, err := takeClaims(ctx, tx, t, leases)
			if err != nil || len(taken) == 0 {
				return err
			}
			now := s.core.Clock.Now()
			settled, ts = records.SettleTaken(t, taken, now,
				func(*config.Type, asyncflow.Lease) asyncflow.Outcome {
					return asyncflow.Outcome{Kind: asyncflow.OutcomeReleased, Error: why}
				})
			return records.WriteSettled(ctx, tx, t, settled, ts, now)
		})
	})
	if err != nil || ts == nil {
		return 0, postgres.Wrap(err, "TakeBackClaims(%q, %q)", t.Tenant, t.Name)
	}
	hot.AnnounceTakenEnds(ctx, s.hot, t, settled, ts)
	return len(settled), nil
}

// takeClaims ends the claims that still stand as they were handed out, and returns them.
func takeClaims(
	ctx context.Context, tx pgx.Tx, t *config.Type, leases []asyncflow.Lease,
) (taken []asyncflow.Lease, err error) {
	var ids []int64
	var seqs []int16
	var untils []time.Time
	leases = slices.SortedFunc(slices.Values(leases), byNumber) // rows are locked in that order
	for _, l := range leases {
		if t.Unseen(l) {
			ids = append(ids, l.ID.Number)
			seqs = append(seqs, int16(l.Seq))
			untils = append(untils, l.Until)
		}
	}
	rows, err := tx.Query(ctx, t.SQL(0, TakeClaimsSQL), ids, seqs, untils, t.Number())
	if err != nil {
		return nil, err
	}
	standing := map[int64]bool{}
	if err := hot.CollectIDs(rows, standing); err != nil {
		return nil, err
	}
	for _, l := range leases {
		if standing[l.ID.Number] {
			taken = append(taken, l)
		}
	}
	return taken, nil
}
