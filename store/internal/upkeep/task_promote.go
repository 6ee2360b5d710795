package upkeep

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// Promote moves tasks from `wait` to `ready`: tasks that are due soon, and tasks that waited for an
// endpoint in one of the served stages, where there is one again. It moves at most JobBatch tasks
// and returns how many it moved.
func (s *Upkeep) Promote(ctx context.Context, t *config.Type, served []string) (int, error) {
	var ts *records.Tokens
	err := s.core.FollowRolls(ctx, t, func(now *config.Type) (err error) {
		ts, err = s.tryPromote(ctx, now, served)
		return err
	})
	if err != nil {
		return 0, postgres.Wrap(err, "Promote(%q, %q)", t.Tenant, t.Name)
	}
	s.core.Wakeups.Announce(t.Key(), ts.Earliest)
	return ts.Readied(), nil
}

func (s *Upkeep) tryPromote(
	ctx context.Context, t *config.Type, served []string,
) (*records.Tokens, error) {
	ts := &records.Tokens{}
	return ts, s.core.Exclusively(ctx, t.Tenant, "promote", func(tx pgx.Tx, now time.Time) error {
		rows, err := tx.Query(ctx, t.SQL(0, `
			WITH c AS MATERIALIZED (
			  SELECT ctid AS t FROM {wait}
			  WHERE type = $5 AND (until <= $1 OR until = 'infinity'
			    AND (reason <> 'flow_key' AND stage = ANY ($2) OR reason = 'flow_key' AND $4))
			  ORDER BY until LIMIT $3 FOR UPDATE SKIP LOCKED)
			DELETE FROM {wait} w USING c WHERE w.ctid = c.t
			RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.key, ''),
			  coalesce(w.since, w.order_time)`),
			now.Add(asyncflow.Soon), served, catalog.JobBatch, !t.Flow.Blocks(), t.Number())
		if err != nil {
			return err
		}
		if err := ts.AddRows(rows, asyncflow.Retry, now); err != nil {
			return err
		}
		if ts.Empty() {
			return postgres.ErrIdle
		}
		b := &pgx.Batch{}
		ts.Queue(b, t)
		return tx.SendBatch(ctx, b).Close()
	})
}
