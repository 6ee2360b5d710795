package store

import (
	"cmp"
	"slices"

	"github.com/jackc/pgx/v5"
)

// takeVotesSQL is takeForClaimsSQL for one claimer: it leaves out tasks on which that has voted or
// holds a vote. All votes of a task stand together, so it takes more than are wanted.
const takeVotesSQL = `
DELETE FROM {wait} w WHERE ctid = ANY (ARRAY(
  SELECT ctid FROM {wait} k
  WHERE type = $1 AND stage = $2 AND until = 'infinity' AND reason <> 'flow_key'
    AND order_time <= $3
    AND NOT EXISTS (SELECT FROM {votes} v WHERE v.type = $1 AND v.claimer = $5 AND v.key = k.key)
  ORDER BY order_time, id
  LIMIT $4
  FOR UPDATE OF k SKIP LOCKED))
RETURNING w.id, w.seq, w.stage, w.attempt, w.order_time, coalesce(w.since, w.order_time),
  coalesce(w.key, '')`

func (c *claiming) queueTakeVotes(b *pgx.Batch) {
	votes := c.t.Stages[c.t.StageIndex(c.stage)].Quorum.Votes
	for _, a := range c.asks {
		room, _ := c.roomOf(a)
		n := min(a.N, room)
		if n <= 0 {
			continue
		}
		for _, name := range c.t.NamesOf(c.stage) {
			b.Queue(c.t.at(0, takeVotesSQL), c.t.number, name, c.now, (n-1)*votes+1, a.Claimer).
				Query(func(rows pgx.Rows) (err error) {
					c.votes[a], err = c.readTaken(rows, c.votes[a])
					return err
				})
		}
	}
}

// giveVotes gives a claimer up to n votes that were taken for it, each on another task.
func (c *claiming) giveVotes(a *ClaimAsk, n int) {
	slices.SortFunc(c.votes[a], func(a, b candidate) int { return leasesInOrder(a.Lease, b.Lease) })
	given := map[string]bool{}
	c.votes[a] = slices.DeleteFunc(c.votes[a], func(one candidate) bool {
		key := cmp.Or(one.key, one.ID.String()) // a task that came before its stage got a quorum
		if len(given) >= n || given[key] {
			return false
		}
		given[key] = true
		c.give(a, one)
		return true
	})
}

// queueVoters writes down who holds the votes that are handed out.
func (c *claiming) queueVoters(b *pgx.Batch) {
	var claimers, keys []string
	for _, l := range c.taken {
		if key := l.Options.Child.VoteKey(); key != "" {
			claimers, keys = append(claimers, l.Claimer), append(keys, key)
		}
	}
	if len(keys) > 0 {
		b.Queue(c.t.at(0, `INSERT INTO {votes} (type, claimer, key)
			SELECT $1, u.* FROM unnest($2::text[], $3::text[]) u ON CONFLICT DO NOTHING`), c.t.number,
			claimers, keys)
	}
}
