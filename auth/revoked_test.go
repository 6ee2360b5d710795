package auth

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A token names itself by iss, jti and exp, whatever forms its issuer gives other claims.
func TestDescribe(t *testing.T) {
	t.Parallel()
	token := func(payload string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".sig"
	}
	const named = `{"iss":"them","jti":"1","exp":4000000000`
	want := Described{TokenName: TokenName{"them", "1"}, ExpiresAt: time.Unix(4000000000, 0).UTC()}
	for _, others := range []string{``, `,"tenant":{"id":"acme"},"scope":{"all":true}`,
		`,"scope":7,"claimers":{},"sub":1,"aud":{},"nbf":"soon","iat":[]`} {
		t.Run(others, func(t *testing.T) {
			got, err := Describe(token(named + others + "}"))
			require.NoError(t, err)
			assert.Equal(t, want, got)
		})
	}
	got, err := Describe(token(named + `,"tenant":"acme","sub":"ci","scope":["read","manage"]}`))
	require.NoError(t, err)
	want.Tenant, want.Subject, want.Scopes = "acme", "ci", "read manage"
	assert.Equal(t, want, got)
	for _, bad := range []string{`{}`, `[]`, `{"iss":"them","jti":"1"}`, `{"iss":"them","exp":1}`,
		`{"iss":{},"jti":"1","exp":1}`, `{"iss":"them","jti":7,"exp":1}`,
		`{"iss":"them","jti":"1","exp":"1"}`, `{"iss":"them","jti":"1","exp":1e300}`,
		`{"ISS":"them","jti":"1","exp":1}`} {
		t.Run(bad, func(t *testing.T) {
			_, err := Describe(token(bad))
			assert.Error(t, err)
		})
	}
}
