package callbacks

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestNewKeysRefusesShortSecrets(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 31} {
		t.Run(fmt.Sprintf("%d bytes", n), func(t *testing.T) {
			_, err := NewKeys(make([]byte, n))
			require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
			require.ErrorContains(t, err, "it must be at least 32")
		})
	}
	_, err := NewKeys(make([]byte, 32))
	require.NoError(t, err)
}

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	keys, sameNode := testKeys(t, nodeSecret), testKeys(t, nodeSecret)
	rapid.Check(t, func(t *rapid.T) {
		secret, context := rapid.String().Draw(t, "secret"), rapid.String().Draw(t, "context")
		sealed := keys.Seal(secret, context)
		if len(secret) > 3 {
			require.NotContains(t, string(sealed), secret)
		}
		opened, err := sameNode.Open(sealed, context)
		require.NoError(t, err)
		require.Equal(t, secret, opened)
		require.NotEqual(t, sealed, keys.Seal(secret, context),
			"each sealing has a nonce of its own")

		_, err = keys.Open(sealed, context+"x")
		require.Error(t, err)
		broken := bytes.Clone(sealed)
		broken[rapid.IntRange(0, len(sealed)-1).Draw(t, "at")] ^= 1
		_, err = keys.Open(broken, context)
		require.Error(t, err)
		_, err = keys.Open(sealed[:rapid.IntRange(0, len(sealed)-1).Draw(t, "length")], context)
		require.Error(t, err)
	})
}

func TestOpenWithAnotherSecret(t *testing.T) {
	t.Parallel()
	sealed := testKeys(t, nodeSecret).Seal(testSecret, "e1")
	_, err := testKeys(t, strings.ToUpper(nodeSecret)).Open(sealed, "e1")
	require.EqualError(t, err,
		"ASYNCFLOW_SECRET is not the one that the secret of endpoint e1 was sealed with: all "+
			"nodes share one, and name the one before in ASYNCFLOW_OLD_SECRETS")
}

func TestRandomBytes(t *testing.T) {
	t.Parallel()
	require.Len(t, RandomBytes(32), 32)
	require.NotEqual(t, RandomBytes(32), RandomBytes(32))
}

var otherSecret = strings.ToUpper(nodeSecret)

// While the node secret is being changed, seals and tokens of both secrets are valid; new ones are
// made with the first.
func TestKeysWhileTheSecretIsChanged(t *testing.T) {
	t.Parallel()
	old := testKeys(t, nodeSecret)
	both, err := NewKeys([]byte(otherSecret), []byte(nodeSecret))
	require.NoError(t, err)
	only := testKeys(t, otherSecret)
	require.NotEqual(t, old.ID(), both.ID())
	require.Equal(t, only.ID(), both.ID())

	sealed := old.Seal(testSecret, "e1")
	opened, err := both.Open(sealed, "e1")
	require.NoError(t, err)
	require.Equal(t, testSecret, opened)
	require.False(t, bytes.HasPrefix(sealed, both.SealedBy()))
	_, err = only.Open(sealed, "e1")
	require.ErrorContains(t, err, "ASYNCFLOW_OLD_SECRETS")
	sealed = both.Seal(testSecret, "e1")
	require.True(t, bytes.HasPrefix(sealed, only.SealedBy()))
	opened, err = only.Open(sealed, "e1")
	require.NoError(t, err)
	require.Equal(t, testSecret, opened)
	_, err = old.Open(sealed, "e1")
	require.Error(t, err)

	before := old.CompletionToken(testCompletion)
	_, err = both.VerifyCompletion(before, testCompletion.Task)
	require.NoError(t, err)
	_, err = only.VerifyCompletion(before, testCompletion.Task)
	require.Error(t, err)
	_, err = only.VerifyCompletion(both.CompletionToken(testCompletion), testCompletion.Task)
	require.NoError(t, err)
}

func TestReseal(t *testing.T) {
	t.Parallel()
	both, err := NewKeys([]byte(otherSecret), []byte(nodeSecret))
	require.NoError(t, err)
	old, only := testKeys(t, nodeSecret), testKeys(t, otherSecret)
	outbound := asyncflow.Outbound{Headers: map[string]string{"X-Key": "swordfish"}}
	settings, err := old.SealOutbound(outbound, "e1")
	require.NoError(t, err)
	e := asyncflow.Endpoint{ID: "e1", Outbound: settings, Secrets: []asyncflow.SigningSecret{
		{ID: "new", Sealed: both.Seal("third", "e1")},
		{ID: "newer", Sealed: old.Seal(testSecret, "e1")},
		{ID: "old", Sealed: old.Seal("other", "e1")}}}
	require.Error(t, only.CheckOpen(e))
	require.NoError(t, both.CheckOpen(e))
	require.NoError(t, both.Reseal(&e))
	require.NoError(t, only.CheckOpen(e))
	for i, want := range []string{"third", testSecret, "other"} {
		require.True(t, bytes.HasPrefix(e.Secrets[i].Sealed, only.SealedBy()))
		got, err := only.Open(e.Secrets[i].Sealed, "e1")
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	got, err := only.OpenOutbound(e)
	require.NoError(t, err)
	require.Equal(t, outbound, got)
	require.Error(t, old.Reseal(&e), "what can't be opened stays as it is")
	require.NoError(t, only.CheckOpen(e))
}

func TestOldSecretsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := NewKeys([]byte(nodeSecret), []byte("short"))
	require.EqualError(t, err, "ASYNCFLOW_OLD_SECRETS is 5 bytes; it must be at least 32")
	_, err = NewKeys([]byte(nodeSecret), make([][]byte, 6)...)
	require.EqualError(t, err, "ASYNCFLOW_OLD_SECRETS has 6 secrets; the limit is 5")
}
