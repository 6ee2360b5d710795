package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// The examples of RFC 7638, section 3.1, and RFC 8037, appendix A.3. For EC, the coordinates keep
// their leading zeros.
func TestThumbprint(t *testing.T) {
	t.Parallel()
	const n = "" +
		"0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSo" +
		"c_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2" +
		"QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZ" +
		"u0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	for want, key := range map[string]crypto.PublicKey{
		"NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs": &rsa.PublicKey{N: new(big.Int).SetBytes(decode(t,
			n)), E: 65537},
		"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k": ed25519.PublicKey(decode(t,
			"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")),
	} {
		t.Run(want, func(t *testing.T) {
			got, err := thumbprint(key)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}

	key := newECDSA(t, elliptic.P256()).signer.Public().(*ecdsa.PublicKey)
	point, err := key.Bytes()
	require.NoError(t, err)
	jwk, err := canonicalJWK(key)
	require.NoError(t, err)
	x, y := base64url(point[1:33]), base64url(point[33:])
	require.Equal(t, `{"crv":"P-256","kty":"EC","x":"`+x+`","y":"`+y+`"}`, jwk)

	_, err = thumbprint("no key")
	require.Error(t, err)
}

func decode(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(s)
	require.NoError(t, err)
	return b
}
