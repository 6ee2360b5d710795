package store

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// With a synchronous standby, an answer must follow a commit that the standby has. In two
// cases Postgres doesn't wait for the standby, see ADR 26:
//
//   - A transaction that wrote nothing doesn't wait. So the caller calls confirm before it gives
//     an answer that depends on rows of an earlier commit.
//   - A cancelled wait ends as a success with a warning. Package postgres makes it
//     ErrNotReplicated, and the commit counts as one whose answer was lost.

// confirmSQL writes a record that has no reader. So the commit of its transaction waits for the
// standby like any other, and thereby for everything that was committed before. A server that is a
// standby itself refuses to assign a transaction id, as it refuses any write; the record alone
// would be an internal error there.
const confirmSQL = `SELECT pg_current_xact_id(), pg_logical_emit_message(true, 'asyncflow', '')`

// confirm makes a transaction, open or of its own, as durable as any change: its commit waits for
// the standby, and so for everything that the transaction has seen.
func confirm(ctx context.Context, db execer) error {
	_, err := db.Exec(ctx, confirmSQL)
	return err
}

// doubt returns the error of a transaction that began leases. If it isn't known whether that was
// committed, sure must see an answered commit before more leases begin.
func (s *Store) doubt(err error) error {
	if err != nil && postgres.IsPassing(err) && !postgres.RolledBack(err) {
		s.doubtful.Store(true)
	}
	return err
}

// sure checks, after a doubt, that the database answers commits. While a standby is away, each try
// would commit leases that no node knows. Their tasks would lose an attempt each time, and finally
// fail without a delivery.
func (s *Store) sure(ctx context.Context, tenant string) error {
	if !s.doubtful.Load() {
		return nil
	}
	err := confirm(ctx, s.hot(tenant))
	if err == nil {
		s.doubtful.Store(false)
	}
	return err
}
