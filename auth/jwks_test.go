package auth

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// jwkOf returns the JWK of a pair with some changed members.
func jwkOf(t testing.TB, key pair, f fields) json.RawMessage {
	t.Helper()
	text, err := canonicalJWK(key.signer.Public())
	require.NoError(t, err)
	var members fields
	require.NoError(t, json.Unmarshal([]byte(text), &members))
	return f.over(members)
}

func setOf(jwks ...json.RawMessage) []byte {
	text, err := json.Marshal(map[string]any{"keys": append([]json.RawMessage{}, jwks...)})
	if err != nil {
		panic(err)
	}
	return text
}

func TestParseJWKS(t *testing.T) {
	t.Parallel()
	ed, other, ec, rs := newEd25519(t, nil), newEd25519(t, nil), newECDSA(t, elliptic.P256()),
		newRSA(t)
	edPrint, err := thumbprint(ed.signer.Public())
	require.NoError(t, err)
	edNamed := jwkOf(t, ed, fields{"kid": "a", "alg": "EdDSA", "use": "sig"})
	for name, tc := range map[string]struct {
		set       []byte
		algorithm string
		want      []string // the ids
	}{
		"one key":                {setOf(edNamed), "EdDSA", []string{"a"}},
		"told by the key":        {setOf(edNamed), "", []string{"a"}},
		"no alg, no use":         {setOf(jwkOf(t, ed, fields{"kid": "a"})), "EdDSA", []string{"a"}},
		"no kid: the thumbprint": {setOf(jwkOf(t, ed, nil)), "EdDSA", []string{edPrint}},

		"two keys": {setOf(edNamed, jwkOf(t, other, fields{"kid": "b"})), "EdDSA",
			[]string{"a", "b"}},

		"of another family": {setOf(edNamed, jwkOf(t, rs, fields{"kid": "a"}),
			jwkOf(t, ec, fields{"kid": "c"})), "EdDSA", []string{"a"}},
		"for encryption": {setOf(jwkOf(t, rs, fields{"kid": "e", "use": "enc"}),
			jwkOf(t, rs, fields{"kid": "s", "use": "sig"})), "RS256", []string{"s"}},
		"for other operations": {setOf(jwkOf(t, rs,
			fields{"kid": "e", "key_ops": []string{"encrypt"}}),
			jwkOf(t, rs, fields{"kid": "s", "key_ops": []string{"verify"}})), "RS256",
			[]string{"s"}},
		"for another algorithm": {setOf(jwkOf(t, rs, fields{"kid": "p", "alg": "PS256"}),
			jwkOf(t, rs, fields{"kid": "r", "alg": "RS256"})), "RS256", []string{"r"}},
		"of a kind to come": {setOf(json.RawMessage(`{"kty":"AKP","alg":"ML-DSA-44","pub":"AA"}`),
			edNamed), "EdDSA", []string{"a"}},
		"a broken one beside": {setOf(json.RawMessage(`{"kty":"OKP","crv":"Ed25519","x":"AA",`+
			`"kid":"z"}`), edNamed), "EdDSA", []string{"a"}},
		"certificates don't count": {setOf(jwkOf(t, ed,
			fields{"kid": "a", "x5u": "http://127.0.0.1:1/x", "x5c": []string{"AA"}})), "EdDSA",
			[]string{"a"}},
		"unknown members": {[]byte(fmt.Sprintf(` {"keys":[%s],"more":1}`, edNamed)), "EdDSA",
			[]string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keys, err := parseJWKS(tc.set, tc.algorithm)
			require.NoError(t, err)
			var ids []string
			for _, k := range keys {
				ids = append(ids, k.id)
			}
			require.Equal(t, tc.want, ids)
		})
	}
}

func TestParseJWKSRefuses(t *testing.T) {
	t.Parallel()
	ed, rs := newEd25519(t, nil), newRSA(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	good := jwkOf(t, ed, fields{"kid": "a"})
	oct := json.RawMessage(`{"kty":"oct","kid":"s","k":"` + base64url(testSecret) + `"}`)
	many := make([]json.RawMessage, maxSetKeys+1)
	for i := range many {
		many[i] = jwkOf(t, ed, fields{"kid": fmt.Sprint(i)})
	}
	for name, tc := range map[string]struct {
		set  []byte
		want string
	}{
		"no JSON":        {[]byte("<html>"), "is not a JWK Set"},
		"cut short":      {setOf(good)[:40], "is not a JWK Set"},
		"an array":       {[]byte("[]"), "is not a JWK Set"},
		"no keys member": {[]byte(`{"key":[]}`), "has no member keys"},
		"keys null":      {[]byte(`{"keys":null}`), "has no member keys"},
		"keys no list":   {[]byte(`{"keys":{}}`), "is not a JWK Set"},
		"no keys":        {setOf(), "no key for signatures by EdDSA"},
		"none of the family": {setOf(jwkOf(t, rs, fields{"kid": "r"})),
			"no key for signatures by EdDSA; key 1 is for RS256"},
		"a number for a key":    {setOf(json.RawMessage("7")), "key 1 is not a JWK"},
		"a symmetric key":       {setOf(good, oct), "key 2 of 2: is a symmetric key"},
		"a symmetric key alone": {setOf(oct), "is a symmetric key"},
		"hidden symmetric key":  {setOf(jwkOf(t, ed, fields{"k": "AAAA"})), "is a symmetric key"},

		"a private key": {setOf(jwkOf(t, ed, fields{"kid": "a", "d": "AAAA"})), "is a private key"},

		"a private RSA key": {setOf(good, jwkOf(t, rs, fields{"p": "AAAA"})), "is a private key"},
		"a secret for others": {setOf(good,
			json.RawMessage(`{"kty":"oct","use":"enc","k":"AAAA"}`)), "is a symmetric key"},
		"the same id twice": {setOf(good, jwkOf(t, newEd25519(t, nil), fields{"kid": "a"})),
			`two keys have the id "a"`},
		"the same key twice": {setOf(good, good), `two keys have the id "a"`},
		"too many":           {setOf(many...), "has 101 keys; the limit is 100"},
		"alg that isn't its": {setOf(jwkOf(t, rs, fields{"alg": "EdDSA"})), "key 1 is for RS256"},
		"too long an id": {setOf(jwkOf(t, ed, fields{"kid": string(make([]byte, 200))})),
			"kid must have 1 to 128 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := parseJWKS(tc.set, "EdDSA")
			require.ErrorContains(t, err, tc.want)
		})
	}
	_, err = parseJWKS(setOf(jwkOf(t, newPair(t, weak, nil), nil)), "RS256")
	require.ErrorContains(t, err, "at least 2048 bits")
	_, err = parseJWKS(setOf(jwkOf(t, newECDSA(t, elliptic.P384()), nil)), "ES256")
	require.ErrorContains(t, err, "must be on P-256")
	_, err = parseJWKS(setOf(good, jwkOf(t, rs, fields{"kid": "r"})), "")
	require.ErrorContains(t, err, "several algorithms", "nothing says which is meant")
}

// A set that this package writes can be read again, and contains no private half.
func TestJWKSRoundTrip(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"EdDSA", "ES256", "RS256"} {
		t.Run(algorithm, func(t *testing.T) {
			private, public, err := GenerateKey(algorithm, "mine")
			require.NoError(t, err)
			for _, text := range [][]byte{private, public} {
				keys, err := ReadKeys(text)
				require.NoError(t, err)
				set, err := keys.JWKS()
				require.NoError(t, err)
				again, err := ReadKeys(set)
				require.NoError(t, err)
				require.Equal(t, keys.List(), again.List())
				require.True(t, again.Has(keys))
				require.Equal(t, "mine", again.List()[0].ID)
				require.Equal(t, algorithm, again.List()[0].Algorithm)
			}
		})
	}
	_, _, err := GenerateKey("HS256", "")
	require.ErrorContains(t, err, "alg")
}
