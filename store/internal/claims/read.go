package claims

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
	"github.com/asyncflow/asyncflow/store/internal/trees"
)

// openClaimsSQL reads the claims of some claimers that haven't run out. It has no order: with one,
// the planner walks over all leases of the type in that order.
const openClaimsSQL = `
SELECT id, seq, stage, attempt, leased_at, until, claimer,
  coalesce(subject, '') FROM {lease}
WHERE type = $1 AND claimer = ANY ($2) AND stage = ANY ($3) AND until > $4`

func (c *claiming) queueOpen(b *pgx.Batch) {
	var claimers []string
	for _, a := range c.asks {
		claimers = append(claimers, a.Claimer)
	}
	b.Queue(c.t.SQL(0, openClaimsSQL), c.t.Number(), claimers, c.t.NamesOf(c.stage), c.now).
		Query(func(rows pgx.Rows) error {
			l := asyncflow.Lease{}
			l.ID.Type = c.t.Name
			_, err := pgx.ForEachRow(rows,
				[]any{&l.ID.Number, &l.Seq, &l.Stage, &l.Attempt, &l.LeasedAt, &l.Until, &l.Claimer,
					&l.Subject}, func() error {
					c.open[l.Claimer] = append(c.open[l.Claimer], l)
					return nil
				})
			return err
		})
}

// takeForClaimsSQL takes the first due tasks of a stage.
const takeForClaimsSQL = `
DELETE FROM {wait} w WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {wait}
  WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
    AND order_time <= $3
  ORDER BY order_time, id
  LIMIT $4
  FOR UPDATE SKIP LOCKED))
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time),
  coalesce(w.key, ''), w.rules::text`

func (c *claiming) queueTake(b *pgx.Batch) {
	c.queueTaken(b, &c.found, takeForClaimsSQL, c.most)
}

// queueTaken adds a statement that takes tasks of the stage to a batch, which appends them to
// found.
func (c *claiming) queueTaken(b *pgx.Batch, found *[]hot.Candidate, sql string, args ...any) {
	for _, name := range c.t.NamesOf(c.stage) {
		b.Queue(c.t.SQL(0, sql), append([]any{c.t.Number(), name, c.now}, args...)...).
			Query(func(rows pgx.Rows) (err error) {
				*found, err = c.readTaken(rows, *found)
				return err
			})
	}
}

// readTaken appends the rows that were taken to all.
func (c *claiming) readTaken(rows pgx.Rows, all []hot.Candidate) ([]hot.Candidate, error) {
	one := hot.Candidate{}
	one.ID.Type = c.t.Name
	var rules []byte
	_, err := pgx.ForEachRow(rows, []any{&one.ID.Number, &one.Seq, &one.Stage, &one.Attempt,
		&one.OrderTime, &one.Placed, &one.LineKey, &rules}, func() (err error) {
		one.Options.Claim, err = asyncflow.ReadClaimRules(rules)
		all = append(all, one)
		return err
	})
	return all, err
}

// claimHeadSQL reads when the next task of a stage is due.
const claimHeadSQL = `
SELECT order_time FROM {wait}
WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
ORDER BY order_time, id LIMIT 1`

func (c *claiming) queueHead(b *pgx.Batch, next *time.Time) {
	if c.passes != nil || c.window.Picks() {
		c.queuePlannedHead(b, next)
		return
	}
	sql := claimHeadSQL
	args := []any{c.t.Number(), ""}
	if c.voters {
		if sql, args = votesHeadSQL, append(args, c.empty()); len(c.empty()) == 0 {
			return
		}
	}
	for _, name := range c.t.NamesOf(c.stage) {
		args[1] = name
		b.Queue(c.t.SQL(0, sql), slices.Clone(args)...).QueryRow(scanHead(next))
	}
}

// scanHead reads the earliest time of several rows.
func scanHead(next *time.Time) func(pgx.Row) error {
	return func(row pgx.Row) error {
		var order time.Time
		switch err := row.Scan(&order); {
		case err == pgx.ErrNoRows:
			return nil
		case err != nil:
			return err
		}
		if next.IsZero() || order.Before(*next) {
			*next = order
		}
		return nil
	}
}

// readPayloads reads the options and contexts of the tasks to be handed out, until the contexts
// have some bytes. The remaining tasks get none.
func (c *claiming) readPayloads(ctx context.Context, conn *postgres.TenantConn, bytes int) error {
	var all []asyncflow.Lease
	byID := map[int64]*asyncflow.Lease{}
	for _, a := range c.asks {
		all = append(all, a.Leases...)
		for i := range a.Leases {
			byID[a.Leases[i].ID.Number] = &a.Leases[i]
		}
	}
	if len(all) == 0 {
		return nil
	}
	b := &pgx.Batch{}
	hot.QueueBoundedPayloads(c.path, b, c.t, all, byID, bytes)
	return conn.Send(ctx, b)
}

// readPauses finds out which of the parents of the new claims are paused or stopped. A paused one
// is locked, so that a resume finds the children that are parked; one that somebody else has locked
// is in busy.
func (c *claiming) readPauses(
	ctx context.Context, conn *postgres.TenantConn,
) (paused, busy map[records.FanOutKey]bool, err error) {
	var parents []records.FanOutKey
	for _, a := range c.asks {
		if a.New {
			parents = append(parents, trees.ParentsOf(c.t, a.Leases)...)
		}
	}
	if len(parents) == 0 {
		return nil, nil, nil
	}
	var halted trees.Halts
	b := &pgx.Batch{}
	halted.Queue(b, c.t, parents, c.now)
	err = conn.Send(ctx, b)
	if busy, c.halted = halted.Paused, halted.Stopped; err != nil || len(busy) == 0 {
		return nil, nil, err
	}
	paused, err = c.lockPaused(ctx, conn, parents)
	return paused, busy, err
}

// lockPaused locks the fan-outs that are paused and that nobody else has locked.
func (c *claiming) lockPaused(
	ctx context.Context, conn *postgres.TenantConn, parents []records.FanOutKey,
) (paused map[records.FanOutKey]bool, err error) {
	paused = map[records.FanOutKey]bool{}
	var key records.FanOutKey
	b := &pgx.Batch{}
	b.Queue(c.t.SQL(0, trees.LockPausedSQL("SKIP LOCKED")),
		trees.ParentArgs(parents)...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&key.Number, &key.ID, &key.Seq}, func() error {
			paused[key] = true
			return nil
		})
		return err
	})
	return paused, conn.Send(ctx, b)
}
