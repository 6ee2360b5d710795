package records

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/config"
)

// A tally has the counts of a type in one transaction. Each transaction that changes a count
// inserts a row with the change, so that the sums are exact. Rows are only inserted, so that
// transactions don't wait for each other. Fold adds the rows up later.
type Tally struct {
	Submitted int // new tasks
	Attempts  int // attempts that ended
	Failures  int // attempts that ended without being done
	Snoozes   int // attempts that workers put off, and that don't count
	// Tasks that became final. A redrive subtracts one.
	Succeeded, Failed, Cancelled int
	Expired                      int // how many of Failed expired
}

// Count counts a settlement that is written.
func (c *Tally) Count(s *asyncflow.Settlement) {
	switch s.Outcome.Kind {
	case asyncflow.OutcomeDone:
		c.Attempts++
	case asyncflow.OutcomeSnoozed:
		if s.Snoozes() {
			c.Snoozes++
			break
		}
		c.Attempts++
		c.Failures++
	case asyncflow.OutcomeFailed, asyncflow.OutcomeRejected, asyncflow.OutcomeLost:
		c.Attempts++
		c.Failures++
	}
	c.Final(s.Verdict.Final(), 1)
	if s.Verdict.Expired {
		c.Expired++
	}
}

// Final counts n tasks that got into a final status, or out of it if n is negative.
func (c *Tally) Final(status asyncflow.Status, n int) {
	switch status {
	case asyncflow.StatusSucceeded:
		c.Succeeded += n
	case asyncflow.StatusFailed:
		c.Failed += n
	case asyncflow.StatusCancelled:
		c.Cancelled += n
	}
}

// tallyRow is a row of tallies.
type tallyRow struct {
	name string // of the type
	Tally
}

// Insert adds the insert of the counts to a batch.
func (c Tally) Insert(b *pgx.Batch, sql, taskType string, at time.Time) {
	if c != (Tally{}) {
		b.Queue(sql, taskType, at, c.Submitted, c.Attempts, c.Failures, c.Snoozes, c.Succeeded,
			c.Failed, c.Cancelled)
	}
}

// queueExpired adds the insert of the number of expired tasks to a batch, if there are some.
func (r tallyRow) queueExpired(b *pgx.Batch, t *config.TableNames) {
	if r.Expired != 0 {
		b.Queue(t.SQL(0, InsertExpiredSQL), r.name, r.Expired)
	}
}

// DropTallies deletes the tallies of a type. It waits for a fold under way, which would insert
// them again.
func DropTallies(ctx context.Context, tx pgx.Tx, t *config.Type) error {
	b := &pgx.Batch{}
	catalog.QueueLocks(b, t.Set().Tables, FoldJob, 0)
	b.Queue(t.SQL(0, `DELETE FROM {tallies} WHERE type = $1`), t.Name)
	b.Queue(t.SQL(0, `DELETE FROM {expired_tallies} WHERE type = $1`), t.Name)
	return tx.SendBatch(ctx, b).Close()
}

// FoldJob is the name of the job that folds counts, and of its lock.
const FoldJob = "fold"
