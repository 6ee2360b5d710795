package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// Promote moves waiting tasks to ready: those that are due soon, and those that waited for an
// endpoint in one of the served stages, which have one again. It moves at most JobBatch
// tasks and returns how many it moved.
func (s *upkeep) Promote(ctx context.Context, t *Type, served []string) (int, error) {
	var ts *tokens
	err := s.following(ctx, t, func(now *Type) (err error) {
		ts, err = s.tryPromote(ctx, now, served)
		return err
	})
	if err != nil {
		return 0, wrap(err, "Promote(%q, %q)", t.Tenant, t.Name)
	}
	s.Wakeups.Announce(t.Key(), ts.earliest)
	return ts.readied(), nil
}

func (s *upkeep) tryPromote(ctx context.Context, t *Type, served []string) (*tokens, error) {
	ts := &tokens{}
	return ts, s.exclusively(ctx, t.Tenant, "promote", func(tx pgx.Tx, now time.Time) error {
		rows, err := tx.Query(ctx, t.at(0, `
			WITH c AS MATERIALIZED (
			  SELECT ctid AS t FROM {wait}
			  WHERE type = $5 AND (until <= $1 OR until = 'infinity'
			    AND (reason <> 'flow_key' AND stage = ANY ($2) OR reason = 'flow_key' AND $4))
			  ORDER BY until LIMIT $3 FOR UPDATE SKIP LOCKED)
			DELETE FROM {wait} w USING c WHERE w.ctid = c.t
			RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.key, ''),
			  coalesce(w.since, w.order_time)`),
			now.Add(asyncflow.Soon), served, JobBatch, t.Flow == nil, t.number)
		if err != nil {
			return err
		}
		var id int64
		var seq int
		var key string
		var placed time.Time
		v := asyncflow.Verdict{Kind: asyncflow.Retry}
		_, err = pgx.ForEachRow(rows, []any{&id, &seq, &v.Stage, &v.Attempt, &v.OrderTime, &key, &placed},
			func() error {
				ts.add(id, seq, key, v, placed, now)
				return nil
			})
		if err != nil {
			return err
		}
		if ts.empty() {
			return errIdle
		}
		b := &pgx.Batch{}
		ts.queue(b, t)
		return tx.SendBatch(ctx, b).Close()
	})
}
