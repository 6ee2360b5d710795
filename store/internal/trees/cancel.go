package trees

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// CancelAll cancels the given tasks of one roll, except final ones, and returns them. It takes
// their token rows, and looks again for rows that just moved to another table. ids ascend, as in
// settlements, so that both lock rows in the same order.
func CancelAll(
	ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64, reason string, now time.Time,
) (settled []asyncflow.Settlement, err error) {
	o := asyncflow.Outcome{Kind: asyncflow.OutcomeCancelled, Error: reason}
	if err := LockFanOuts(ctx, tx, t, ids); err != nil {
		return nil, err
	}
	var cancelled []int64
	for range records.CancelTries {
		leases, err := records.TakeAnyTokens(ctx, tx, t, ids)
		if err != nil {
			return nil, err
		}
		for _, l := range leases {
			settled = append(settled,
				asyncflow.Settlement{Lease: l, Outcome: o,
					Verdict: asyncflow.Decide(t.TaskType, l, o, now)})
			cancelled = append(cancelled, l.ID.Number)
		}
		if ids, err = records.StillLive(ctx, tx, t, ids, cancelled); err != nil {
			return nil, err
		}
		if len(ids) == 0 && len(settled) == 0 {
			return nil, nil
		}
		if len(ids) == 0 {
			return settled, writeCancelled(ctx, tx, t, settled, now)
		}
	}
	return nil, TooFast()
}

// These statements are about the open fan-outs of tasks. For their form see records.TakeAnyWaitSQL.
const (
	OpenFanOutsSQL = `
SELECT o.id, o.seq FROM unnest($2::bigint[]) AS u (id), LATERAL (
  SELECT id, seq, stopped FROM {fan_outs}
  WHERE type = $1 AND id BETWEEN u.id AND u.id AND NOT closed ORDER BY id, seq) o`
	LockFanOutsSQL = `
SELECT FROM (SELECT DISTINCT id FROM unnest($2::bigint[]) AS id ORDER BY id) u, LATERAL (
  SELECT FROM {fan_outs} WHERE type = $1 AND id BETWEEN u.id AND u.id AND NOT closed
  ORDER BY id, seq FOR UPDATE) o`
	// Without a condition on closed outside: with it, Postgres may read all of the index on open
	// ones. They are locked.
	StopFanOutsSQL = `
WITH stopped AS (
  UPDATE {fan_outs} o SET stopped = true
  FROM (SELECT f.* FROM unnest($2::bigint[]) AS u (id), LATERAL (
      SELECT type, id, seq FROM {fan_outs}
      WHERE type = $1 AND id BETWEEN u.id AND u.id AND NOT closed ORDER BY id, seq) f
    OFFSET 0) u
  WHERE o.type = ANY (ARRAY[u.type]) AND o.id BETWEEN u.id AND u.id
    AND o.seq BETWEEN u.seq AND u.seq
  RETURNING o.type, o.id, o.seq)
INSERT INTO {outbox} (kind, due, type, id, fan_out)
SELECT 'stop', $3, type, id, seq FROM stopped`
)

// LockFanOuts locks the fan-outs of tasks of one roll before their token rows, as FollowUp does.
func LockFanOuts(ctx context.Context, tx pgx.Tx, t *config.Type, ids []int64) error {
	_, err := tx.Exec(ctx, t.SQL(0, LockFanOutsSQL), t.Number(), ids)
	return err
}

// writeCancelled writes the settlements of a cancel.
func writeCancelled(
	ctx context.Context, tx pgx.Tx, t *config.Type, settled []asyncflow.Settlement, now time.Time,
) error {
	leases := make([]asyncflow.Lease, len(settled))
	for i := range settled {
		leases[i] = settled[i].Lease
	}
	if err := records.ReadOptions(ctx, tx, t, leases); err != nil {
		return err
	}
	for i := range settled {
		settled[i].Lease = leases[i]
	}
	return writeEnded(ctx, tx, t, settled, now)
}

// writeEnded writes the settlements of tasks that end from outside. The caller has locked their
// fan-outs. No child of theirs begins any more; FollowUp cancels them.
func writeEnded(
	ctx context.Context, tx pgx.Tx, t *config.Type, settled []asyncflow.Settlement, now time.Time,
) error {
	ids := make([]int64, len(settled))
	for i := range settled {
		ids[i] = settled[i].Lease.ID.Number
	}
	if err := records.WriteSettled(ctx, tx, t, settled, &records.Tokens{}, now); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, t.SQL(0, StopFanOutsSQL), t.Number(), ids, now)
	return err
}

// TooFast is the error of a change to a task that moved on before each try.
func TooFast() error {
	return &asyncflow.Error{Code: asyncflow.CodeUnavailable,
		Message: "the task moves on too fast; try again", RetryAfter: time.Second}
}
