package callbacks

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/asyncflow/asyncflow"
)

func TestNewKeysRefusesShortSecrets(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 31} {
		_, err := NewKeys(make([]byte, n))
		require.Equal(t, asyncflow.CodeInvalid, asyncflow.CodeOf(err))
		require.ErrorContains(t, err, "it must be at least 32")
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
		require.NotEqual(t, sealed, keys.Seal(secret, context), "each sealing has a nonce of its own")

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
	require.EqualError(t, err, "ASYNCFLOW_SECRET is not the one that the secret of endpoint e1 was sealed with: all nodes share one, and name the one before in ASYNCFLOW_OLD_SECRETS")
}

func TestRandomBytes(t *testing.T) {
	t.Parallel()
	require.Len(t, RandomBytes(32), 32)
	require.NotEqual(t, RandomBytes(32), RandomBytes(32))
}
