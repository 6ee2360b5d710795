package hot

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

// With a synchronous standby, an answer must follow a commit that is on the standby. In two cases
// Postgres doesn't wait for the standby, see ADR 26:
//
//   - A transaction that wrote nothing doesn't wait. So the caller calls Core.Confirm before it
//     gives an answer that depends on rows of an earlier commit.
//   - A cancelled wait ends as a success with a warning. Package postgres makes it
//     ErrNotReplicated, and the commit counts as one with a lost answer.

// NoteFailure returns the error of a transaction that began leases. If it isn't known whether that
// was committed, CheckCommits must see an answered commit of the same server before more leases
// begin there.
func NoteFailure(s *Path, tenant string, err error) error {
	if err != nil && postgres.IsPassing(err) && !postgres.RolledBack(err) {
		s.unknownLeases.Store(s.core.Server(tenant), true)
	}
	return err
}

// CheckCommits checks, after a doubt, that the server of a tenant answers commits. While a standby
// is away, each try would commit leases that no node knows. Their tasks would lose an attempt each
// time, and finally fail without a delivery.
func CheckCommits(ctx context.Context, s *Path, tenant string) error {
	server := s.core.Server(tenant)
	if _, unknown := s.unknownLeases.Load(server); !unknown {
		return nil
	}
	if err := s.core.ConfirmHot(ctx, tenant); err != nil {
		return err
	}
	s.unknownLeases.Delete(server)
	return nil
}
