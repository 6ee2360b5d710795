package store

import "context"

// ForgetClaims deletes windows of a tenant's claimers that are over, late votes that have been kept
// for long enough, and what is known of claimers who vote no more, at most JobBatch of each. It
// returns how many.
func (s *claims) ForgetClaims(ctx context.Context, tenant string) (n int, err error) {
	for _, name := range []string{"claim_windows", "votes", "voters"} {
		table := quote(schemaOf(tenant)) + "." + name
		tag, err := s.of(tenant).Exec(ctx, `DELETE FROM `+table+` WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM `+table+` WHERE until < $1 ORDER BY until LIMIT $2))`, s.Clock.Now(), JobBatch)
		if err != nil {
			return n, wrap(err, "ForgetClaims(%q)", tenant)
		}
		n += int(tag.RowsAffected())
	}
	return n, nil
}

// DryRunForgetClaims returns how many rows ForgetClaims would delete.
func (s *claims) DryRunForgetClaims(ctx context.Context, tenant string) (n int, err error) {
	schema := quote(schemaOf(tenant))
	return countRows(ctx, s.of(tenant), `SELECT (SELECT count(*) FROM `+schema+`.claim_windows
		WHERE until < $1) + (SELECT count(*) FROM `+schema+`.votes WHERE until < $1)
		+ (SELECT count(*) FROM `+schema+`.voters WHERE until < $1)`, s.Clock.Now())
}
