package claims

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/config"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// A row in line may lack the rules of its task: it came there without the options at hand, as after
// a delay, or when its stage got the mode claim. A plan takes it for one that anyone may have. When
// a claimer is kept from such a row by the options, the transaction also gives the next rows
// their rules. So a claimer goes through a line of them in pages, not row by row.

// mostCopies is how many rows without rules one transaction looks at, besides the tasks that it
// takes.
const mostCopies = 1000

// bareSQL reads tasks whose rows in line are without rules, from a place on.
const bareSQL = `
SELECT id FROM {wait}
WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
  AND order_time <= $3 AND (order_time, id) > ($4, $5) AND rules IS NULL
ORDER BY order_time, id LIMIT $6`

// RulesSQL reads the rules of the tasks of one roll which have some. For its form see
// records.TakeAnyWaitSQL.
const RulesSQL = `
SELECT t.id, o.claim
FROM unnest($1::bigint[]) AS u (id), LATERAL (
  SELECT * FROM {task} WHERE type = $2 AND id BETWEEN u.id AND u.id ORDER BY id LIMIT 1) t,
  LATERAL (SELECT ({options}) -> 'claim' AS claim) o
WHERE o.claim IS NOT NULL`

// noteBare notes a task that was taken from a row without its rules.
func (c *claiming) noteBare(one hot.Candidate) {
	if p := (place{one.OrderTime, one.ID.Number}); c.bare == nil || p.before(*c.bare) {
		c.bare = &p
	}
}

// copyRules takes the rows behind such a task that lack rules, and puts them back with them.
func (c *claiming) copyRules(ctx context.Context, conn *postgres.TenantConn) error {
	if c.bare == nil || c.plans == nil {
		return nil
	}
	ids, err := c.readBare(ctx, conn)
	if err != nil || len(ids) == 0 {
		return err
	}
	rules, err := c.readRules(ctx, conn, ids)
	if err != nil || len(rules) == 0 {
		return err
	}
	ids = ids[:0]
	for id := range rules {
		ids = append(ids, id)
	}
	var found []hot.Candidate
	b := &pgx.Batch{}
	c.queueTaken(b, &found, takePlannedSQL, ids, len(ids))
	if err := conn.Send(ctx, b); err != nil || len(found) == 0 {
		return err
	}
	ids = ids[:0]
	for _, one := range found {
		ids = append(ids, one.ID.Number)
	}
	// Once more: until a row was taken, the rules of its task could be changed.
	rules, err = c.readRules(ctx, conn, ids)
	for _, one := range found {
		one.Options.Claim = rules[one.ID.Number]
		c.putBack(one, asyncflow.ParkFor(one.Lease, asyncflow.WaitClaimer))
	}
	return err
}

// readBare reads the first tasks from c.bare on whose rows are without rules.
func (c *claiming) readBare(ctx context.Context, conn *postgres.TenantConn) (ids []int64, _ error) {
	b := &pgx.Batch{}
	for _, name := range c.t.NamesOf(c.stage) {
		b.Queue(c.t.SQL(0, bareSQL), c.t.Number(), name, c.now, c.bare.order, c.bare.id,
			mostCopies).Query(func(rows pgx.Rows) error {
			some, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			ids = append(ids, some...)
			return err
		})
	}
	err := conn.Send(ctx, b)
	return ids, err
}

// readRules reads the rules of the tasks with rules.
func (c *claiming) readRules(
	ctx context.Context, conn *postgres.TenantConn, ids []int64,
) (map[int64]*asyncflow.ClaimRules, error) {
	all := map[int64]*asyncflow.ClaimRules{}
	b := &pgx.Batch{}
	for position, some := range config.ByPosition(ids) {
		b.Queue(c.t.SQL(position, RulesSQL), some, c.t.Number()).Query(func(rows pgx.Rows) error {
			var id int64
			var r *asyncflow.ClaimRules
			_, err := pgx.ForEachRow(rows, []any{&id, &r}, func() error {
				all[id] = r
				r = nil
				return nil
			})
			return err
		})
	}
	err := conn.Send(ctx, b)
	return all, err
}
