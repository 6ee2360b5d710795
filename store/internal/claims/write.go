package claims

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/hot"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/records"
)

// AgainSQL moves the begin and the end of claims that are handed out again, or that their claimers
// name, and that still stand. For its form see records.TakeAnyWaitSQL.
const AgainSQL = `
UPDATE {lease} l SET leased_at = u.leased_at, until = u.until
FROM (SELECT $5::int AS type, u.*
  FROM unnest($1::bigint[], $2::smallint[], $3::timestamptz[], $4::timestamptz[])
    AS u (id, seq, leased_at, until) OFFSET 0) u
WHERE l.type = ANY (ARRAY[u.type]) AND l.id BETWEEN u.id AND u.id AND l.seq = u.seq
RETURNING l.id`

// queueWrites adds the rows of the claims to a batch.
func (c *claiming) queueWrites(b *pgx.Batch, node string) {
	c.queueLeases(b, node)
	b.Queue(c.t.SQL(0, askedSQL), c.t.Number(), c.stage, c.now, c.now.Add(-askedEvery))
	if c.window != nil {
		c.queueWindows(b, *c.window)
	}
	c.queueAddVoters(b)
	c.queueAgain(b)
	c.queueNamed(b)
	c.back.Queue(b, c.t)
}

func (c *claiming) queueLeases(b *pgx.Batch, node string) {
	var ids []int64
	var seqs, attempts []int16
	var claimers []string
	var subjects, workers []*string
	for _, l := range c.taken {
		ids = append(ids, l.ID.Number)
		seqs = append(seqs, int16(l.Seq))
		attempts = append(attempts, int16(l.Attempt))
		claimers = append(claimers, l.Claimer)
		subjects = append(subjects, postgres.OrNull(l.Subject))
		workers = append(workers, postgres.OrNull(l.Worker))
	}
	if len(ids) > 0 {
		b.Queue(c.t.SQL(0, records.InsertClaimSQL), ids, seqs, attempts, claimers, subjects,
			workers, c.stage, c.until, node, c.now, c.t.Number())
	}
}

// queueNamed prolongs the claims that their claimers say they have.
func (c *claiming) queueNamed(b *pgx.Batch) {
	if len(c.named) > 0 {
		c.queueMoves(b, c.named)
	}
}

// queueMoves moves the begins and ends of leases, in the order of their numbers.
func (c *claiming) queueMoves(b *pgx.Batch, leases []asyncflow.Lease) *pgx.QueuedQuery {
	slices.SortFunc(leases, byNumber)
	var ids []int64
	var seqs []int16
	var begins, untils []time.Time
	for _, l := range leases {
		ids = append(ids, l.ID.Number)
		seqs = append(seqs, int16(l.Seq))
		begins = append(begins, l.LeasedAt)
		untils = append(untils, l.Until)
	}
	return b.Queue(c.t.SQL(0, AgainSQL), ids, seqs, begins, untils, c.t.Number())
}

// queueAgain begins open claims anew, and drops the claims that ended meanwhile from the asks.
func (c *claiming) queueAgain(b *pgx.Batch) {
	if len(c.again) == 0 {
		return
	}
	c.queueMoves(b, c.again).Query(func(rows pgx.Rows) error {
		standing := map[int64]bool{}
		if err := hot.CollectIDs(rows, standing); err != nil {
			return err
		}
		for _, a := range c.asks {
			a.Leases = slices.DeleteFunc(a.Leases, func(l asyncflow.Lease) bool {
				return !a.New && !standing[l.ID.Number]
			})
		}
		return nil
	})
}
