package settings

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store/internal/catalog"
	"github.com/asyncflow/asyncflow/store/internal/postgres"
)

const (
	// MaxListedTokens is how many tokens are listed, and MaxRevokedTokens how many of them may be
	// revoked: nodes have these in memory. Both count until they expire.
	MaxListedTokens  = 100_000
	MaxRevokedTokens = 10_000
	// tokenKept is how long after its expiry a token is kept: nodes give clocks some leeway.
	tokenKept = 10 * time.Minute
)

// Token is what is known of a token. Fields are empty of one that was revoked without being listed.
type Token struct {
	Issuer, ID string // its claims iss and jti
	Kind       string // tenant or operator
	Tenant     string
	Subject    string
	Scopes     string // separated by spaces
	Limits     []byte // of its claims, as JSON; nil: none, or not known
	MadeAt     time.Time
	MadeBy     string
	ExpiresAt  time.Time
	RevokedAt  time.Time // zero: it isn't
	RevokedBy  string
}

// NoteToken lists a token that was made. CodeQuota: too many are listed.
func (s *tokens) NoteToken(ctx context.Context, t Token) error {
	return postgres.Wrap(s.withTokens(ctx, func(tx pgx.Tx) error {
		n, err := countTokens(ctx, tx, `expires_at > $1`, s.core.Clock.Now())
		if err != nil {
			return err
		}
		if n >= MaxListedTokens {
			return asyncflow.Errorf(asyncflow.CodeQuota,
				"%d tokens are listed, which is the limit: give tokens shorter lives", n)
		}
		_, err = tx.Exec(ctx, `INSERT INTO asyncflow.tokens
			  (issuer, id, kind, tenant, subject, scopes, made_at, made_by, expires_at, limits)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`, t.Issuer, t.ID, t.Kind,
			postgres.OrNull(t.Tenant), t.Subject, postgres.OrNull(t.Scopes), s.core.Clock.Now(),
			t.MadeBy, t.ExpiresAt, t.Limits)
		return err
	}), "NoteToken(%q)", t.ID)
}

// withTokens runs do in a transaction that counts tokens.
func (s *tokens) withTokens(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.core.DB(""), func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `LOCK TABLE asyncflow.tokens IN SHARE ROW EXCLUSIVE MODE`)
		if err != nil {
			return err
		}
		return do(tx)
	})
}

func countTokens(ctx context.Context, tx pgx.Tx, where string, args ...any) (n int, err error) {
	err = tx.QueryRow(ctx, `SELECT count(*) FROM asyncflow.tokens WHERE `+where, args...).Scan(&n)
	return n, err
}

const tokenColumns = `issuer, id, coalesce(kind, ''), coalesce(tenant, ''), coalesce(subject, ''),
	coalesce(scopes, ''), made_at, coalesce(made_by, ''), expires_at, revoked_at,
	coalesce(revoked_by, ''), limits::text`

func scanToken(row pgx.CollectableRow) (t Token, err error) {
	var made, revoked *time.Time
	err = row.Scan(&t.Issuer, &t.ID, &t.Kind, &t.Tenant, &t.Subject, &t.Scopes, &made, &t.MadeBy,
		&t.ExpiresAt, &revoked, &t.RevokedBy, &t.Limits)
	t.MadeAt = postgres.OrZero(made)
	t.RevokedAt = postgres.OrZero(revoked)
	return t, err
}

// TokenPage returns up to limit of the listed tokens that are valid, of a tenant ("": of all
// and of operators), and reports whether there are more. They are in the order of their expiry, the
// next one first, and of their ids; after is the last one of the page before.
func (s *tokens) TokenPage(
	ctx context.Context, tenant string, after Token, limit int,
) (page []Token, more bool, err error) {
	rows, _ := s.core.Base.Query(ctx, `SELECT `+tokenColumns+` FROM asyncflow.tokens
		WHERE expires_at > $1 AND ($2 = '' OR tenant = $2)
		  AND ($3::timestamptz IS NULL OR (expires_at, issuer, id) > ($3, $4, $5))
		ORDER BY expires_at, issuer, id LIMIT $6`, s.core.Clock.Now(), tenant,
		postgres.OrNull(after.ExpiresAt), after.Issuer, after.ID, limit+1)
	page, more, err = postgres.CollectPage(rows, limit, postgres.PageBytes, scanToken,
		func(t Token) int { return len(t.Scopes) + len(t.Subject) + len(t.Issuer) + len(t.Limits) })
	return page, more, postgres.Wrap(err, "TokenPage(%q)", tenant)
}

// RevokeToken has all nodes refuse a token until it expires, and returns it. A token that isn't
// listed expires at until; without that it is CodeNotFound. A revoked one is returned as it is.
// CodeQuota: too many are revoked.
func (s *tokens) RevokeToken(
	ctx context.Context, issuer, id string, until time.Time, by string,
) (t Token, err error) {
	now := s.core.Clock.Now()
	err = s.withTokens(ctx, func(tx pgx.Tx) error {
		t, err = readToken(ctx, tx, issuer, id)
		switch {
		case errors.Is(err, pgx.ErrNoRows) && until.IsZero():
			return asyncflow.Errorf(asyncflow.CodeNotFound, "no token %q of the issuer %q is "+
				"listed: say until when it may be valid, to revoke it all the same", id, issuer)
		case err != nil && !errors.Is(err, pgx.ErrNoRows):
			return err
		case err == nil && !t.RevokedAt.IsZero() && !until.After(t.ExpiresAt):
			return nil
		}
		n, err := countTokens(ctx, tx, `revoked_at IS NOT NULL AND expires_at > $1`, now)
		if err != nil {
			return err
		}
		if n >= MaxRevokedTokens {
			return asyncflow.Errorf(asyncflow.CodeQuota, "%d tokens are revoked, which is the "+
				"limit: change the key of their issuer instead", n)
		}
		_, err = tx.Exec(ctx, `INSERT INTO asyncflow.tokens AS t
			  (issuer, id, expires_at, revoked_at, revoked_by) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (issuer, id) DO UPDATE SET revoked_at = coalesce(t.revoked_at, $4),
			  revoked_by = coalesce(t.revoked_by, $5),
			  expires_at = greatest(t.expires_at, excluded.expires_at)`, issuer, id,
			latest(until, t.ExpiresAt), now, by)
		if err != nil {
			return err
		}
		t, err = readToken(ctx, tx, issuer, id)
		return err
	})
	return t, postgres.Wrap(err, "RevokeToken(%q, %q)", issuer, id)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func readToken(ctx context.Context, tx pgx.Tx, issuer, id string) (Token, error) {
	rows, _ := tx.Query(ctx, `SELECT `+tokenColumns+` FROM asyncflow.tokens
		WHERE issuer = $1 AND id = $2`, issuer, id)
	return pgx.CollectExactlyOneRow(rows, scanToken)
}

// RevokedTokens returns the names of the revoked tokens that may still be valid, and a mark. If the
// mark is the given one, they are the same as then, and it returns no names. The mark is a
// checksum: times of several clocks don't grow, and as many tokens may be forgotten as are revoked.
func (s *tokens) RevokedTokens(
	ctx context.Context, known string,
) (all []Token, mark string, err error) {
	err = s.core.Base.QueryRow(ctx, `SELECT count(*) || ' ' ||
		  coalesce(sum(hashtextextended(id, hashtextextended(issuer, 0))), 0)
		FROM asyncflow.tokens WHERE revoked_at IS NOT NULL`).Scan(&mark)
	if err == nil && mark != known {
		rows, _ := s.core.Base.Query(ctx, `SELECT `+tokenColumns+` FROM asyncflow.tokens
			WHERE revoked_at IS NOT NULL`)
		all, err = pgx.CollectRows(rows, scanToken)
	}
	return all, mark, postgres.Wrap(err, "RevokedTokens")
}

// ForgetTokens deletes up to JobBatch expired tokens, and returns how many.
func (s *tokens) ForgetTokens(ctx context.Context) (int, error) {
	tag, err := s.core.DB("").Exec(ctx, `DELETE FROM asyncflow.tokens WHERE (issuer, id) IN (
		  SELECT issuer, id FROM asyncflow.tokens WHERE expires_at < $1
		  ORDER BY expires_at LIMIT $2)`,
		s.core.Clock.Now().Add(-tokenKept), catalog.JobBatch)
	return int(tag.RowsAffected()), postgres.Wrap(err, "ForgetTokens")
}

// DryRunForgetTokens counts the expired tokens.
func (s *tokens) DryRunForgetTokens(ctx context.Context) (int, error) {
	return postgres.CountRows(ctx, s.core.Base, `SELECT count(*) FROM asyncflow.tokens
		WHERE expires_at < $1`, s.core.Clock.Now().Add(-tokenKept))
}
