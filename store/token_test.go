package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/store"
)

// Tokens are listed until they expire, in pages, and there are bounds for listed and revoked ones.
func TestTokens(t *testing.T) {
	b := setup(t)
	later := b.Clock.Now().Add(time.Hour).Truncate(time.Second)
	for i := range 3 {
		require.NoError(t, b.NoteToken(t.Context(), store.Token{Issuer: "us", Kind: "tenant",
			ID: fmt.Sprint(i), Tenant: []string{tenant, "other"}[i%2], Subject: "anna",
			ExpiresAt: later}))
	}
	page, more, err := b.TokenPage(t.Context(), "", store.Token{}, 2)
	require.NoError(t, err)
	assert.True(t, more)
	rest, more, err := b.TokenPage(t.Context(), "", page[1], 2)
	require.NoError(t, err)
	assert.False(t, more)
	assert.Equal(t, []string{"0", "1", "2"}, []string{page[0].ID, page[1].ID, rest[0].ID})
	page, _, err = b.TokenPage(t.Context(), tenant, store.Token{}, 9)
	require.NoError(t, err)
	assert.Len(t, page, 2)

	_, none, err := b.RevokedTokens(t.Context(), "")
	require.NoError(t, err)
	_, err = b.RevokeToken(t.Context(), "them", "0", time.Time{}, "ops")
	assert.Equal(t, asyncflow.CodeNotFound, asyncflow.CodeOf(err), "of another issuer")
	token, err := b.RevokeToken(t.Context(), "us", "0", time.Time{}, "ops")
	require.NoError(t, err)
	assert.Equal(t, []any{"anna", "ops", later.UTC()},
		[]any{token.Subject, token.RevokedBy, token.ExpiresAt.UTC()})
	all, mark, err := b.RevokedTokens(t.Context(), none)
	require.NoError(t, err)
	assert.NotEqual(t, none, mark)
	assert.Equal(t, []store.Token{token}, all)
	all, again, err := b.RevokedTokens(t.Context(), mark)
	require.NoError(t, err)
	assert.Empty(t, all)
	assert.Equal(t, mark, again)

	b.exec(`INSERT INTO asyncflow.tokens (issuer, id, expires_at, revoked_at)
		SELECT 'them', n::text, now() + interval '1 h', now() FROM generate_series(1, $1) n`,
		store.MaxRevokedTokens)
	_, err = b.RevokeToken(t.Context(), "us", "1", time.Time{}, "ops")
	assert.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err))
	b.exec(`INSERT INTO asyncflow.tokens (issuer, id, expires_at)
		SELECT 'full', n::text, now() + interval '1 h' FROM generate_series(1, $1) n`,
		store.MaxListedTokens)
	err = b.NoteToken(t.Context(), store.Token{Issuer: "us", ID: "x", ExpiresAt: later})
	assert.Equal(t, asyncflow.CodeQuota, asyncflow.CodeOf(err))

	b.exec(`DELETE FROM asyncflow.tokens WHERE issuer = 'full'`)
	b.exec(`UPDATE asyncflow.tokens SET expires_at = now() - interval '1 day' WHERE issuer = 'them'`)
	due, err := b.DryRunForgetTokens(t.Context())
	require.NoError(t, err)
	assert.Equal(t, store.MaxRevokedTokens, due)
	n, err := b.ForgetTokens(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1000, n, "in steps")
	_, err = b.RevokeToken(t.Context(), "us", "1", time.Time{}, "ops")
	require.NoError(t, err, "expired ones don't count")
}

// The mark of revoked tokens changes with the tokens, also if another clock revoked one later, and
// as many are deleted as are revoked.
func TestRevokedTokensMark(t *testing.T) {
	b := setup(t)
	until := b.Clock.Now().Add(time.Hour)
	b.exec(`INSERT INTO asyncflow.tokens (issuer, id, expires_at, revoked_at) VALUES
		('us', 'expired', now() - interval '1 day', now() - interval '2 days'),
		('us', 'ahead', now() + interval '1 h', now() + interval '1 min')`)
	_, mark, err := b.RevokedTokens(t.Context(), "")
	require.NoError(t, err)
	_, err = b.RevokeToken(t.Context(), "us", "new", until, "ops")
	require.NoError(t, err)
	n, err := b.ForgetTokens(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	all, after, err := b.RevokedTokens(t.Context(), mark)
	require.NoError(t, err)
	assert.NotEqual(t, mark, after)
	assert.Len(t, all, 2)
}
