package claims

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// mostVotes is the most rows that a statement reads for one claimer that asks for votes: all votes
// on a task stand together in line, and other claimers may get the first ones.
const mostVotes = 200

// takeVotesSQL takes the first votes for each of some claimers, on tasks for which the claimer has
// cast and holds no vote. The same row may be found for several.
const takeVotesSQL = `
DELETE FROM {wait} w WHERE ctid = ANY (ARRAY(
  SELECT k.place FROM unnest($4::text[]) AS c (claimer), LATERAL (
    SELECT ctid AS place FROM {wait} k
    WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
      AND order_time <= $3
      AND NOT EXISTS (SELECT FROM {votes} v
        WHERE v.type = $1 AND v.claimer = c.claimer AND v.key = k.key)
    ORDER BY order_time, id
    LIMIT $5
    FOR UPDATE OF k SKIP LOCKED) k))
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time),
  coalesce(w.key, ''), w.rules::text`

func (c *claiming) queueTakeVotes(b *pgx.Batch) {
	var claimers []string
	sum := 0
	for _, a := range c.asks {
		if left, _ := c.leftInWindow(a); left > 0 {
			claimers = append(claimers, a.Claimer)
			sum += min(a.N, left)
		}
	}
	votes := c.t.Stages[c.t.StageIndex(c.stage)].Quorum.Votes
	most := min(mostVotes, (sum-1)*votes+1)
	if len(claimers) == 0 {
		return
	}
	c.queueTaken(b, &c.found, takeVotesSQL, claimers, most)
}

// readVotes reads which of the claimers have or hold a vote on which of the tasks that were taken.
func (c *claiming) readVotes(ctx context.Context, conn *postgres.TenantConn) error {
	c.votes = map[records.VoteRow]bool{}
	var claimers, keys []string
	for _, one := range c.found {
		if one.LineKey != "" {
			keys = append(keys, one.LineKey)
		}
	}
	if len(keys) == 0 || c.heard {
		return nil
	}
	for _, a := range c.asks {
		claimers = append(claimers, a.Claimer)
	}
	b := &pgx.Batch{}
	b.Queue(c.t.SQL(0, `SELECT claimer, key FROM {votes}
		WHERE type = $1 AND claimer = ANY ($2) AND key = ANY ($3)`), c.t.Number(), claimers, keys).
		Query(func(rows pgx.Rows) error {
			row := records.VoteRow{Number: c.t.Number()}
			_, err := pgx.ForEachRow(rows, []any{&row.Claimer, &row.Key}, func() error {
				c.votes[row] = true
				return nil
			})
			return err
		})
	return conn.Send(ctx, b)
}

// votesHeadSQL reads when the next vote is due that one of some claimers may have.
const votesHeadSQL = `
SELECT order_time FROM {wait} k
WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
  AND EXISTS (SELECT FROM unnest($3::text[]) c (claimer) WHERE NOT EXISTS (SELECT FROM {votes} v
    WHERE v.type = $1 AND v.claimer = c.claimer AND v.key = k.key))
ORDER BY order_time, id LIMIT 1`

// empty returns the claimers that get nothing.
func (c *claiming) empty() []string {
	claimers := []string{}
	for _, a := range c.asks {
		if len(a.Leases) == 0 {
			claimers = append(claimers, a.Claimer)
		}
	}
	return claimers
}

// queueAddVoters writes down who holds the votes that are handed out.
func (c *claiming) queueAddVoters(b *pgx.Batch) {
	var claimers, keys []string
	for _, l := range c.taken {
		if key := l.Options.Child.VoteKey(); key != "" && !c.heard {
			claimers = append(claimers, l.Claimer)
			keys = append(keys, key)
		}
	}
	if len(keys) > 0 {
		b.Queue(c.t.SQL(0, `INSERT INTO {votes} (type, claimer, key)
			SELECT $1, u.* FROM unnest($2::text[], $3::text[]) u ON CONFLICT DO NOTHING`),
			c.t.Number(), claimers, keys)
	}
}
