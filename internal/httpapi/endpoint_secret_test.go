package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/asyncflow/asyncflow"
	"github.com/asyncflow/asyncflow/client/api"
	"github.com/asyncflow/asyncflow/internal/signing"
)

func TestRotateEndpointSecret(t *testing.T) {
	b := setup(t)
	b.pipe()
	e := b.createEndpoint(`"url":"https://w.example.com/x"`)
	require.Len(t, e.Secrets, 1)
	assert.Equal(t, asyncflow.SecretHMAC, e.Secrets[0].Kind)
	assert.Zero(t, e.OldSecretSignsUntil)
	path := "/v1/endpoints/" + e.ID
	rotate := func(body string) answer { return b.call("POST", path+"/rotate-secret", body) }
	second := read[api.Endpoint](b, 200, rotate(""))
	require.NoError(t, signing.CheckSecret(second.Secret))
	assert.NotEqual(t, e.Secret, second.Secret)
	require.Len(t, second.Secrets, 2)
	assert.Zero(t, second.Secrets[0].ExpiresAt)
	assert.Equal(t, e.Secrets[0].ID, second.Secrets[1].ID)
	assert.WithinDuration(t, time.Now().Add(24*time.Hour), second.OldSecretSignsUntil, time.Minute)
	assert.Equal(t, second.OldSecretSignsUntil, second.Secrets[1].ExpiresAt)

	third := read[api.Endpoint](b, 200, rotate(`{"overlap":"1h","kind":"ed25519"}`))
	assert.Empty(t, third.Secret, "a private key is never shown")
	require.Len(t, third.Secrets, 3)
	assert.True(t, strings.HasPrefix(third.Secrets[0].PublicKey, "whpk_"))
	assert.WithinDuration(t, time.Now().Add(time.Hour), third.OldSecretSignsUntil, time.Minute)
	shown := read[api.Endpoint](b, 200, b.call("GET", path, ""))
	assert.Equal(t, third.Secrets, shown.Secrets)
	assert.Empty(t, shown.Secret)

	a := rotate("")
	assert.Equal(t, 409, a.status)
	assert.Equal(t, "the endpoint has 3 secrets that sign; wait until one has ended, or rotate "+
		"with the overlap 0s", a.problem.Detail)
	for body, field := range map[string]string{
		`{"overlap":"721h"}`:   "overlap",
		`{"secret":"whsec_x"}`: "secret",
		`{"kind":"rsa"}`:       "kind",
		`{"kind":"ed25519","secret":"` + ownSecret + `"}`: "kind",
		`{"secret":"` + second.Secret + `"}`:              "secret",
	} {
		a := rotate(body)
		require.Equal(t, 400, a.status, body)
		assert.Equal(t, field, a.problem.Errors[0].Field, body)
		assert.NotContains(t, string(a.body), "whsec_M")
	}
	fourth := read[api.Endpoint](b, 200, rotate(`{"overlap":"0s"}`))
	require.Len(t, fourth.Secrets, 1)
	assert.Equal(t, asyncflow.SecretEd25519, fourth.Secrets[0].Kind, "the kind stays")
	own := read[api.Endpoint](b, 200, rotate(`{"overlap":"0s","secret":"`+ownSecret+`"}`))
	assert.Equal(t, ownSecret, own.Secret)
	assert.Equal(t, asyncflow.SecretHMAC, own.Secrets[0].Kind)
	assert.Equal(t, 404, b.call("POST",
		"/v1/endpoints/0190a6f0-0000-7000-8000-000000000009/rotate-secret", "").status)

	ed := b.createEndpoint(`"url":"https://w.example.com/ed","secret_kind":"ed25519"`)
	assert.Empty(t, ed.Secret)
	assert.True(t, strings.HasPrefix(ed.Secrets[0].PublicKey, "whpk_"))
	a = b.call("POST", "/v1/endpoints",
		`{"type":"pipe","stage":"first","url":"https://w.example.com/x","secret_kind":"ed25519",`+
			`"secret":"`+ownSecret+`"}`)
	assert.Equal(t, "secret_kind is ed25519, but the secret is of the kind hmac", a.problem.Detail)
}
