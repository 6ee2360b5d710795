package auth

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
)

func TestClaimed(t *testing.T) {
	t.Parallel()
	token := func(payload string) string {
		return "eyJhbGciOiJub25lIn0." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + "."
	}
	require.Equal(t, asyncflow.AuditClaim{Issuer: "evil", Subject: "root?", Tenant: "acme"},
		Claimed(token(`{"iss":"evil","sub":"root\n","tenant":"acme","jti":7,"secret":"x"}`)))
	require.Len(t, Claimed(token(`{"sub":"`+strings.Repeat("s", 1000)+`"}`)).Subject,
		asyncflow.MaxAuditClaim)
	for _, bad := range []string{"", "a.b.c", "abc", token("[]"), token(`{"sub":`),
		token(strings.Repeat(" ", MaxTokenBytes))} {
		t.Run(fmt.Sprintf("%.20q", bad), func(t *testing.T) {
			require.Zero(t, Claimed(bad), "%.40s", bad)
		})
	}
}

// The audit distinguishes the tokens of one subject.
func TestTokenID(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.HMACSecret = []byte(strings.Repeat("s", MinSecretBytes))
	v, i := newVerifier(t, cfg), newIssuer(t, cfg)
	seen := map[string]bool{}
	for range 3 {
		token, err := i.Issue("acme", "ci", nil, time.Hour, testNow)
		require.NoError(t, err)
		for range 2 { // the second time from the cache
			p, err := v.Verify(t.Context(), token, testNow)
			require.NoError(t, err)
			require.NotEmpty(t, p.TokenID)
			require.Equal(t, "asyncflow", p.Issuer)
			seen[p.TokenID] = true
		}
	}
	require.Len(t, seen, 3)
}
