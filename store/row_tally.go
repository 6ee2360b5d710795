package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
)

// A tally has the counts of a type in one transaction. Each transaction that changes a count
// inserts a row with the change, so that the sums are exact. Rows are only inserted, so that
// transactions don't wait for each other. Fold adds the rows up later.
type tally struct {
	submitted int // new tasks
	attempts  int // attempts that ended
	failures  int // of them, those that ended without being done
	// Tasks that became final. A redrive subtracts one.
	succeeded, failed, cancelled int
}

// count counts a settlement that is written.
func (c *tally) count(s *asyncflow.Settlement) {
	switch s.Outcome.Kind {
	case asyncflow.OutcomeDone:
		c.attempts++
	case asyncflow.OutcomeFailed, asyncflow.OutcomeRejected, asyncflow.OutcomeLost:
		c.attempts++
		c.failures++
	}
	c.final(s.Verdict.Final(), 1)
}

// final counts n tasks that got into a final status, or out of it if n is negative.
func (c *tally) final(status asyncflow.Status, n int) {
	switch status {
	case asyncflow.StatusSucceeded:
		c.succeeded += n
	case asyncflow.StatusFailed:
		c.failed += n
	case asyncflow.StatusCancelled:
		c.cancelled += n
	}
}

// tallyRow is a row of tallies.
type tallyRow struct {
	name string // of the type
	tally
}

func (c tally) insert(b *pgx.Batch, sql, taskType string, at time.Time) {
	if c != (tally{}) {
		b.Queue(sql, taskType, at, c.submitted, c.attempts, c.failures, c.succeeded, c.failed,
			c.cancelled)
	}
}

// dropTallies deletes the tallies of a type. It waits for a fold under way, which would insert
// them again.
func (t *Type) dropTallies(ctx context.Context, tx pgx.Tx) error {
	b := &pgx.Batch{}
	queueLocks(b, t.set.tables, foldJob, 0)
	b.Queue(t.at(0, `DELETE FROM {tallies} WHERE type = $1`), t.Name)
	return tx.SendBatch(ctx, b).Close()
}

const foldJob = "fold"
