package claims

import (
	"context"

	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
	"github.com/asyncflow/asyncflow/store/internal/schema"
)

// ForgetClaims deletes windows of a tenant's claimers that are over, late votes that have been kept
// for long enough, and what is known of claimers who vote no more, at most JobBatch of each. It
// returns how many.
func (s *Claims) ForgetClaims(ctx context.Context, tenant string) (n int, err error) {
	for _, name := range []string{"claim_windows", "votes", "voters"} {
		table := postgres.Quote(schema.Of(tenant)) + "." + name
		tag, err := s.core.DB(tenant).Exec(ctx, `DELETE FROM `+table+` WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM `+table+` WHERE until < $1 ORDER BY until LIMIT $2))`,
			s.core.Clock.Now(), catalog.JobBatch)
		if err != nil {
			return n, postgres.Wrap(err, "ForgetClaims(%q)", tenant)
		}
		n += int(tag.RowsAffected())
	}
	return n, nil
}

// DryRunForgetClaims returns how many rows ForgetClaims would delete.
func (s *Claims) DryRunForgetClaims(ctx context.Context, tenant string) (n int, err error) {
	schema := postgres.Quote(schema.Of(tenant))
	return postgres.CountRows(ctx, s.core.DB(tenant), `SELECT (SELECT count(*) FROM `+schema+
		`.claim_windows
		WHERE until < $1) + (SELECT count(*) FROM `+schema+`.votes WHERE until < $1)
		+ (SELECT count(*) FROM `+schema+`.voters WHERE until < $1)`, s.core.Clock.Now())
}
